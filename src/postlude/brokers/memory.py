"""A broker in this process: for demos, tests and trying things out. It can be told to fail."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import HELD, SENT, Outcome, Parked
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import BrokerFeatures, Received, Start

Fate = Callable[[BrokerMessage], Outcome | None]
Place = tuple[str, int]
"""A topic, and the number of a message in it."""


class MemoryBroker:
    """Keeps messages by topic, in order. `fate` decides over a message; None means that it is sent."""

    features = BrokerFeatures(ordered_failure=True, persistent=False)

    def __init__(self) -> None:
        self.topics: dict[str, list[BrokerMessage]] = defaultdict(list)
        self.fate: Fate | None = None
        self.is_down = False
        self.published = 0
        self.keep = True
        self._groups: dict[str, _Group] = {}
        self._members: set[MemorySubscription] = set()

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to flush."""

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]:
        self.require_up()
        stopped: set[str] = set()
        outcomes = [self._publish(message, stopped) for message in messages]
        for member in self._members:
            member.wake()
        return outcomes

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

    def subscribe(
        self, topics: Sequence[str], group: str, *, start: Start = "earliest", prefetch: int = 500
    ) -> AbstractAsyncContextManager[MemorySubscription]:
        return self._subscribed(topics, self._groups.setdefault(group, _Group()), start, prefetch)

    @asynccontextmanager
    async def _subscribed(
        self, topics: Sequence[str], group: _Group, start: Start, prefetch: int
    ) -> AsyncIterator[MemorySubscription]:
        for topic in topics:
            group.next.setdefault(topic, len(self.topics[topic]) if start == "latest" else 0)
        member = MemorySubscription(self, topics, group, prefetch)
        self._members.add(member)
        try:
            yield member
        finally:
            self._members.discard(member)
            member.leave()
            for other in self._members:
                other.wake()

    def require_up(self) -> None:
        if self.is_down:
            raise BrokerUnavailable("the memory broker was told to be down")


class _Group:
    """Where a group stands: what nobody has taken yet, and what must be given once more."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}
        self.again: dict[Place, float] = {}
        """What is to come again, and from when on."""
        self.taken: set[Place] = set()


class MemorySubscription:
    """A member of a group in this process. What it leaves unacknowledged goes to the others."""

    def __init__(self, broker: MemoryBroker, topics: Sequence[str], group: _Group, prefetch: int) -> None:
        self._broker = broker
        self._topics = topics
        self._group = group
        self._prefetch = prefetch
        self._own: set[Place] = set()
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def receive(self, limit: int, timeout: float) -> list[Received]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._broker.require_up()
            self._news.clear()
            if places := self._take(min(limit, self._prefetch - len(self._own)), loop.time()):
                return [self._received(place) for place in places]
            until = min([deadline, *(due for place, due in self._group.again.items() if place[0] in self._topics)])
            if loop.time() >= deadline:
                return []
            try:
                async with asyncio.timeout_at(until if self._has_room() else deadline):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def ack(self, received: Sequence[Received]) -> None:
        self._broker.require_up()
        self._settle(received)

    async def nack(self, received: Sequence[Received], delay: float) -> None:
        self._broker.require_up()
        due = asyncio.get_running_loop().time() + delay
        self._group.again |= dict.fromkeys(self._settle(received), due)

    def position(self, received: Received) -> str | None:
        topic, number = received.place
        return f"{topic}/{number}"

    async def lag(self) -> int | None:
        self._broker.require_up()
        group, topics = self._group, self._topics
        unread = sum(max(0, len(self._broker.topics[topic]) - group.next[topic]) for topic in topics)
        return unread + sum(1 for topic, _ in (*group.taken, *group.again) if topic in topics)

    def leave(self) -> None:
        self._group.taken -= self._own
        self._group.again |= dict.fromkeys(self._own, 0.0)
        self._own.clear()

    def _has_room(self) -> bool:
        return len(self._own) < self._prefetch

    def _take(self, count: int, now: float) -> list[Place]:
        """The oldest first: what comes again has a smaller number than what nobody has taken yet."""
        group = self._group
        due = sorted(place for place, when in group.again.items() if when <= now and place[0] in self._topics)
        places = due[: max(0, count)]
        for place in places:
            del group.again[place]
        for topic in self._topics:
            first = group.next[topic]
            last = min(len(self._broker.topics[topic]), first + max(0, count - len(places)))
            places += [(topic, number) for number in range(first, last)]
            group.next[topic] = max(first, last)
        group.taken.update(places)
        self._own.update(places)
        return places

    def _received(self, place: Place) -> Received:
        topic, number = place
        message = self._broker.topics[topic][number]
        return Received(topic, message.key, message.payload, dict(message.headers), place)

    def _settle(self, received: Sequence[Received]) -> set[Place]:
        """Those that are still this member's."""
        places = {one.place for one in received} & self._own
        self._own -= places
        self._group.taken -= places
        return places
