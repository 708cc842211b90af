"""Where events go: routes to brokers and handlers in this process, by event type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.core.event import EventSpec, as_key, fields_of, spec_of
from postlude.core.lanes import lane_of
from postlude.core.outcome import Policy
from postlude.core.retry import Retry
from postlude.core.sealed import is_sealed_field
from postlude.errors import ConfigurationError
from postlude.outbox.handlers import Handler
from postlude.ports.append import Route

EVERYTHING = "*"


class BrokerRoute(msgspec.Struct, frozen=True):
    """Events of a type, or every event, go to a broker."""

    type: str
    to: str
    topic: str | None
    key: str | None
    open_sealed: bool = False


class Subscription(msgspec.Struct, frozen=True):
    """A destination of this app that wants events of a type, in the order of a key of its own."""

    spec: EventSpec
    destination: str
    key: Callable[[Any], str]


Key = str | Callable[[Any], str] | None
"""The field that is the key at a destination, or what makes it of an event; None: the event's own key."""
Retries = Callable[[StoredEvent | None], Retry | None]
"""How often a destination tries an event; None: as often as others do."""


class Routes:
    """What this app knows of types, brokers and handlers."""

    def __init__(self, *, retry: Retry, retries: Mapping[str, Retry], on_dead: str) -> None:
        self._retry = retry
        self._retries = retries
        self._on_dead = on_dead
        self._routes: list[BrokerRoute] = []
        self.handlers: dict[str, Handler] = {}
        self._specs: dict[str, EventSpec] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._retries_at: dict[str, Retries] = {}
        self._is_taken: Callable[[Handler], bool] = lambda _: False
        self._targets: dict[str, tuple[tuple[str, Key], ...]] = {}
        """Looked up once for each type that is appended."""

    def add(self, route: BrokerRoute) -> None:
        if route in self._routes:
            raise ConfigurationError(f"{route.type} is routed to {route.to} twice")
        self._routes.append(route)
        self._targets.clear()

    def add_handler(self, handler: Handler) -> None:
        if handler.name in self.handlers:
            raise ConfigurationError(
                f"there are two handlers named {handler.name!r}", hint="Give one of them another name=."
            )
        self.handlers[handler.name] = handler
        self._targets.clear()
        self._specs[handler.spec.type] = handler.spec

    def subscribe(self, subscriptions: Sequence[Subscription], destination: str, retries: Retries) -> None:
        """Have events delivered to a destination that decides for itself how often it tries, and never blocks a key."""
        for one in subscriptions:
            self._subscriptions.setdefault((one.spec.type, one.destination), one)
            self.know(one.spec)
        self._retries_at[destination] = retries
        self._targets.clear()

    def take_over(self, is_taken: Callable[[Handler], bool]) -> None:
        """Handlers that somebody else calls are no destinations of their own."""
        self._is_taken = is_taken
        self._targets.clear()

    @property
    def own_handlers(self) -> list[Handler]:
        """Those that are destinations."""
        return [handler for handler in self.handlers.values() if not self._is_taken(handler)]

    def know(self, spec: EventSpec) -> None:
        """Remember a class that was appended or routed, for its policy."""
        self._specs.setdefault(spec.type, spec)

    @property
    def may_name_subjects(self) -> bool:
        """Does an event of this app name a data subject? Any could, where every event has a route."""
        if any(route.type == EVERYTHING for route in self._routes):
            return True
        return any(spec.subjects for spec in (*self._specs.values(), *self.subscribed()))

    def targets(self, event_type: str) -> Iterator[tuple[str, Key]]:
        """Destinations of a type, each with what its key is there."""
        seen = set()
        for route in self._routes:
            if route.type in (event_type, EVERYTHING) and route.to not in seen:
                seen.add(route.to)
                yield route.to, route.key
        for handler in self.own_handlers:
            if handler.spec.type == event_type and handler.source is None:
                yield handler.destination, None
        for subscription in self._subscriptions.values():
            if subscription.spec.type == event_type:
                yield subscription.destination, subscription.key

    def topic(self, destination: str) -> Callable[[StoredEvent], str]:
        """Says the topic of an event at a destination: the append's own, else the route's, else that of its class. A
        route of the type goes before one for every event."""
        given = {route.type: route.topic for route in self._routes if route.to == destination}

        def choose(event: StoredEvent) -> str:
            routed = given[event.type] if event.type in given else given.get(EVERYTHING)
            return event.topic if routed is None or self._chose_topic(event) else routed

        return choose

    def opens(self, destination: str) -> Callable[[StoredEvent], bool] | None:
        """Says whether an event goes there opened; None: none does. Likewise."""
        given = {route.type: route.open_sealed for route in self._routes if route.to == destination}
        if not any(given.values()):
            return None
        return lambda event: given[event.type] if event.type in given else given.get(EVERYTHING, False)

    def subscribed(self) -> Iterator[EventSpec]:
        """The classes that somebody takes in this process."""
        yield from (handler.spec for handler in self.handlers.values())
        yield from (one.spec for one in self._subscriptions.values())

    def _chose_topic(self, event: StoredEvent) -> bool:
        spec = self._specs.get(event.type)
        return spec is not None and event.topic != spec.topic

    def brokers(self) -> set[str]:
        """The brokers that something is routed to."""
        return {route.to for route in self._routes}

    def resolve(self, spec: EventSpec, event: object, event_id: UUID, key: str | None, lanes: int) -> tuple[Route, ...]:
        """The routes of one event."""
        targets = self._targets.get(spec.type)
        if targets is None:
            targets = self._targets[spec.type] = tuple(self.targets(spec.type))
        found = []
        for destination, field in targets:
            own = key
            if field is not None:
                own = as_key(field(event) if callable(field) else getattr(event, field))
            found.append(Route(destination, lane_of(own, event_id, lanes), own))
        return tuple(found)

    def resolve_stored(self, event: StoredEvent, lanes: int) -> Sequence[Route]:
        """The routes of an event that a raw SQL producer wrote: by its stored key only."""
        lane = lane_of(event.key, event.event_id, lanes)
        return [Route(destination, lane, event.key) for destination, _ in self.targets(event.type)]

    def policy(self, event: StoredEvent | None, destination: str) -> Policy:
        """How failures of this event at this destination are treated."""
        event_type = None if event is None else event.type
        if destination in self._retries_at:
            return Policy(self._retries_at[destination](event) or self._retry)
        handler = next((one for one in self.handlers.values() if one.destination == destination), None)
        retry = self._retries.get(event_type or "", self._retry)
        if handler is not None and handler.retry is not None:
            retry = handler.retry
        spec = self._specs.get(event_type or "")
        on_dead = spec.on_dead if spec is not None and spec.on_dead is not None else self._on_dead
        return Policy(retry, on_dead == "block")


def route_of(event: Any, to: str, topic: str | None, key: str | None, *, open_sealed: bool = False) -> BrokerRoute:
    """A route for an event class, or for every event (`"*"`)."""
    if event == EVERYTHING:
        if key is not None:
            raise ConfigurationError("a route for every event cannot name a key field")
        return BrokerRoute(EVERYTHING, to, topic, None, open_sealed)
    spec = spec_of(event)
    if key is not None and key not in fields_of(spec.cls):
        raise ConfigurationError(f"{spec.cls.__qualname__} has no field {key!r} to be the key of its route")
    if key is not None and is_sealed_field(spec.cls, key):
        raise ConfigurationError(
            f"{spec.cls.__qualname__}.{key} is sealed, and a key is stored in clear",
            hint="Order by a field that is not personal: an id of your own.",
        )
    return BrokerRoute(spec.type, to, topic, key, open_sealed)
