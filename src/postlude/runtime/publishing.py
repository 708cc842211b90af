"""A broker as a destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import structs

from postlude.core.delivery import Fence, StoredEvent
from postlude.core.envelope import BrokerMessage, message
from postlude.core.outcome import Fault, Outcome, Unavailable
from postlude.core.structured import enclosed
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Broker
from postlude.ports.destination import Entry, Terms


class BrokerDestination:
    """Publishes a batch at once. `topic` says where an event goes there, `mode` how CloudEvents are written."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        *,
        lanes: int,
        batch: int,
        topic: Callable[[StoredEvent], str],
        mode: Literal["binary", "structured"] = "binary",
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._is_structured = mode == "structured"
        self.terms = Terms(
            name=name, kind="broker", lanes=lanes, batch=batch, ordered_failure=broker.features.ordered_failure
        )

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:  # noqa: ARG002 - a broker has no fence
        messages = [self._message(entry) for entry in entries]
        try:
            return await self._broker.publish(messages)
        except BrokerUnavailable as error:
            return [Unavailable(Fault(type(error).__name__, error.code))] * len(entries)

    def _message(self, entry: Entry) -> BrokerMessage:
        event, key = entry.event, entry.delivery.key
        if event.key != key:  # a route may order by another field than the event itself
            event = structs.replace(event, key=key)
        made = message(event, topic=self._topic(event))
        return enclosed(made) if self._is_structured else made

    async def open(self) -> None:
        await self._broker.open()

    async def close(self) -> None:
        await self._broker.close()
