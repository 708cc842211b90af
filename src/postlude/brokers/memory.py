"""A broker in this process: for demos, tests and trying things out. It can be told to fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import HELD, SENT, Outcome, Parked
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import BrokerFeatures

Fate = Callable[[BrokerMessage], Outcome | None]


class MemoryBroker:
    """Keeps messages by topic, in order. `fate` decides over a message; None means that it is sent."""

    features = BrokerFeatures(ordered_failure=True)

    def __init__(self) -> None:
        self.topics: dict[str, list[BrokerMessage]] = defaultdict(list)
        self.fate: Fate | None = None
        self.is_down = False
        self.published = 0
        self.keep = True

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to flush."""

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]:
        if self.is_down:
            raise BrokerUnavailable("the memory broker was told to be down")
        stopped: set[str] = set()
        return [self._publish(message, stopped) for message in messages]

    def _publish(self, message: BrokerMessage, stopped: set[str]) -> Outcome:
        if message.key is not None and message.key in stopped:
            return HELD
        outcome = SENT if self.fate is None else self.fate(message) or SENT
        if outcome is SENT:
            self.published += 1
            if self.keep:
                self.topics[message.topic].append(message)
        elif message.key is not None and not isinstance(outcome, Parked):
            stopped.add(message.key)
        return outcome

    def messages(self, topic: str | None = None) -> list[BrokerMessage]:
        """What was published to a topic, or to all of them."""
        if topic is not None:
            return list(self.topics[topic])
        return [message for messages in self.topics.values() for message in messages]
