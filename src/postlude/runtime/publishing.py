"""A broker as a destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import structs

from postlude.core.delivery import Fence, StoredEvent
from postlude.core.envelope import BrokerMessage, message
from postlude.core.outcome import Fault, Outcome, Rejected, Unavailable
from postlude.core.sealing import HEADER
from postlude.core.structured import enclosed
from postlude.errors import BrokerUnavailable, CannotOpen, DatabaseUnavailable, KeysUnavailable
from postlude.ports.broker import Broker
from postlude.ports.destination import Entry, Terms
from postlude.runtime.opening import Open


class BrokerDestination:
    """Publishes a batch at once. `topic` says where an event goes there, `mode` how CloudEvents are written, `open`
    how sealed events are opened and which."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        *,
        lanes: int,
        batch: int,
        topic: Callable[[StoredEvent], str],
        mode: Literal["binary", "structured"] = "binary",
        open: tuple[Open, Callable[[StoredEvent], bool]] | None = None,
    ) -> None:
        self._open = open
        self._broker = broker
        self._topic = topic
        self._is_structured = mode == "structured"
        self.terms = Terms(
            name=name, kind="broker", lanes=lanes, batch=batch, ordered_failure=broker.features.ordered_failure
        )

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:  # noqa: ARG002 - a broker has no fence
        try:
            events = await self._events(entries)
            messages = [
                self._message(entry, event)
                for entry, event in zip(entries, events, strict=True)
                if not isinstance(event, CannotOpen)
            ]
            outcomes = iter(await self._broker.publish(messages) if messages else ())
        except (BrokerUnavailable, DatabaseUnavailable, KeysUnavailable) as error:
            return [Unavailable(Fault(type(error).__name__, error.code))] * len(entries)
        return [
            Rejected(Fault(type(event).__name__, event.code)) if isinstance(event, CannotOpen) else next(outcomes)
            for event in events
        ]

    async def _events(self, entries: Sequence[Entry]) -> list[StoredEvent | CannotOpen]:
        """As they are stored; those that a route opens, opened."""
        events: list[StoredEvent | CannotOpen] = [entry.event for entry in entries]
        if self._open is None:
            return events
        open, is_wanted = self._open
        sealed = [
            place for place, entry in enumerate(entries) if HEADER in entry.event.headers and is_wanted(entry.event)
        ]
        for place, found in zip(sealed, await open([entries[place].event for place in sealed]), strict=True):
            events[place] = found
        return events

    def _message(self, entry: Entry, event: StoredEvent) -> BrokerMessage:
        key = entry.delivery.key
        if event.key != key:  # a route may order by another field than the event itself
            event = structs.replace(event, key=key)
        made = message(event, topic=self._topic(event))
        return enclosed(made) if self._is_structured else made

    async def open(self) -> None:
        await self._broker.open()

    async def close(self) -> None:
        await self._broker.close()
