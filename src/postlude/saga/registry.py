"""The sagas of an app: what starts and moves them, which handlers are theirs, and whether all of it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from postlude.core.delivery import StoredEvent
from postlude.core.event import EventSpec, spec_of
from postlude.core.retry import Retry
from postlude.core.saga.definition import Way
from postlude.errors import ConfigurationError
from postlude.outbox.handlers import Handler, Source
from postlude.outbox.routes import BrokerRoute, Routes, Subscription
from postlude.saga.checks import refuse
from postlude.saga.compiled import Compiled, Declared, compiled
from postlude.saga.messages import TYPE, SagaMessage, destination_of
from postlude.saga.plain import Saga
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef, arguments_of

Typed = SagaDef[Any, Any]
BROKER = "default"
"""Where commands go and replies come from."""


class Registry:
    """Handlers may be registered before or after the sagas that use them: what is missing is told at the start."""

    def __init__(self, routes: Routes, *, has_broker: Callable[[str], bool]) -> None:
        self._routes = routes
        self._has_broker = has_broker
        self._sagas: dict[str, Compiled] = {}
        routes.take_over(self.owns)

    def __iter__(self) -> Iterator[Compiled]:
        return iter(self._sagas.values())

    def add(self, saga: Declared) -> None:
        made = compiled(saga)
        name = made.definition.name
        if name in self._sagas:
            raise ConfigurationError(f"there are two sagas named {name!r}", hint="Give one of them another name.")
        self._sagas[name] = made
        source = made.source
        subscriptions = [] if isinstance(source, Saga) else list(_subscriptions(source))
        self._routes.subscribe(subscriptions, destination_of(name), lambda event: self._retry(made, event))
        if isinstance(source, SagaDef) and self._has_broker(BROKER):
            self._route_commands(source)

    def named(self, name: str) -> Compiled | None:
        return self._sagas.get(name)

    def of(self, saga: Declared | str) -> Compiled:
        """The registered saga that is meant: by itself, its class or its name."""
        name = saga if isinstance(saga, str) else saga.name
        found = self._sagas.get(name)
        if found is None:
            known = ", ".join(sorted(self._sagas)) or "none"
            raise ConfigurationError(
                f"there is no saga {name!r}", hint=f"Known: {known}. Call app.sagas.register(...) first."
            )
        return found

    def owns(self, handler: Handler) -> bool:
        """Is it called by sagas only?"""
        if handler.source is not None:
            return False
        return any(
            _does(handler, step) or _undoes(handler, step)
            for made in self._sagas.values()
            if isinstance(made.source, SagaDef)
            for step in made.source.steps
        )

    def handler_of(self, saga: Typed, step: SagaStep, *, undo: bool = False) -> Handler:
        """Who does it, or undoes it."""
        fits = _undoes if undo else _does
        found = [one for one in self._routes.handlers.values() if one.source is None and fits(one, step)]
        wanted: Any = step.compensation if undo else step.handler
        if not found:
            what = f"nobody handles {wanted.__name__}, its undo" if undo else f"no {wanted.__name__} is registered"
            refuse(saga.name, step.name, what, "Give app.register(...) an instance, or write @app.on(...).")
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            refuse(saga.name, step.name, f"it cannot be told which handler is meant: {names}", "Leave one of them.")
        return found[0]

    def check(self) -> None:
        """Whatever a worker will need is there."""
        for made in self._sagas.values():
            if isinstance(made.source, Saga):
                continue
            for step, plan in zip(made.source.steps, made.definition.steps, strict=True):
                if plan.way is Way.handler:
                    self.handler_of(made.source, step)
                if plan.undo is Way.handler:
                    self.handler_of(made.source, step, undo=True)
                for command in _sent(step):
                    self._require_receiver(made.source, step, spec_of(command))

    def sources(self) -> Iterator[tuple[Source, EventSpec, str]]:
        """Replies that come through a broker: from where, what, and for which destination."""
        if not self._has_broker(BROKER):
            return
        for made in self._sagas.values():
            if isinstance(made.source, SagaDef):
                name = made.definition.name
                for cls in {cls: None for step in made.source.steps if _sent(step) for cls in _ends(step)}:
                    spec = spec_of(cls)
                    yield Source(f"saga-{name}", BROKER, spec.topic), spec, destination_of(name)

    def _route_commands(self, saga: Typed) -> None:
        for step in saga.steps:
            for command in _sent(step):
                spec = spec_of(command)
                if BROKER not in dict(self._routes.targets(spec.type)):
                    self._routes.add(BrokerRoute(spec.type, BROKER, None, None))
                self._routes.know(spec)

    def _require_receiver(self, saga: Typed, step: SagaStep, spec: EventSpec) -> None:
        if not list(self._routes.targets(spec.type)):
            refuse(
                saga.name,
                step.name,
                f"nobody receives {spec.cls.__name__}: there is no broker and no handler for it",
                "Give Postlude(broker=...), or write @app.on(...) for it.",
            )

    def _retry(self, made: Compiled, event: StoredEvent | None) -> Retry | None:
        if event is None or event.type != TYPE:
            return None
        message = SagaMessage.read(event.payload)
        if message.step is None or message.what == "deadline" or message.step not in made.definition.index:
            return None
        told = made.definition[message.step].retry
        if told is None and isinstance(made.source, SagaDef) and message.what in ("run", "undo"):
            step = made.source.steps[made.definition.index[message.step]]
            return self.handler_of(made.source, step, undo=message.what == "undo").retry
        return told


def _subscriptions(saga: Typed) -> Iterator[Subscription]:
    trigger, _ = arguments_of(type(saga))
    destination = destination_of(saga.name)
    yield Subscription(spec_of(trigger), destination, lambda event: saga.serialize_id(saga.extract_id(event)))
    for cls in awaited_by(saga):
        yield Subscription(spec_of(cls), destination, saga.process_id)


def awaited_by(saga: Typed) -> list[type[Any]]:
    """The events that a run of it may wait for."""
    return list(dict.fromkeys(cls for step in saga.steps for cls in _ends(step)))


def _ends(step: SagaStep) -> list[type[Any]]:
    """The events that end a step which others do, or its undo."""
    ends = () if step.handler is not None else (step.success, step.failure)
    return [cls for cls in (*ends, step.compensated, step.compensation_failed) if cls is not None]


def _sent(step: SagaStep) -> list[type[Any]]:
    """The events that ask a participant."""
    undo = step.compensation if step.compensated is not None else None
    return [cls for cls in (step.command, undo) if cls is not None]


def _does(handler: Handler, step: SagaStep) -> bool:
    return step.handler is not None and isinstance(getattr(handler.function, "__self__", None), step.handler)


def _undoes(handler: Handler, step: SagaStep) -> bool:
    is_local = step.undo_is_said and step.compensation is not None and step.compensated is None
    return is_local and handler.spec.cls is step.compensation
