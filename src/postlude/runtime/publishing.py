"""A broker as a destination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postlude.core.delivery import Fence
from postlude.core.envelope import message
from postlude.core.outcome import Fault, Outcome, Unavailable
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Broker
from postlude.ports.destination import Entry, Terms


class BrokerDestination:
    """Publishes a batch at once. `topics` has the topics that routes give to event types."""

    def __init__(self, name: str, broker: Broker, *, lanes: int, batch: int, topics: Mapping[str, str]) -> None:
        self._broker = broker
        self._topics = topics
        self.terms = Terms(
            name=name, kind="broker", lanes=lanes, batch=batch, ordered_failure=broker.features.ordered_failure
        )

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:  # noqa: ARG002 - a broker has no fence
        messages = [message(entry.event, topic=self._topics.get(entry.event.type)) for entry in entries]
        try:
            return await self._broker.publish(messages)
        except BrokerUnavailable as error:
            return [Unavailable(Fault(type(error).__name__, error.code))] * len(entries)

    async def open(self) -> None:
        await self._broker.open()

    async def close(self) -> None:
        await self._broker.close()
