"""One call of publish: batches by partition, each begun when the one before it is confirmed."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from aiokafka import errors as kafka
from aiokafka.partitioner import murmur2

from postlude.brokers.kafka.errors import Kind, kind_of, outcome_of
from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import HELD, SENT, Outcome

OVERHEAD = 128
"""Bytes of a record and its batch beside what we put into it, at most; a header has ten more."""

Place = tuple[str, int]

_TOPIC = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")


@lru_cache(maxsize=65_536)
def hash_of(key: str) -> int:
    """As the Java client hashes a key."""
    return int(murmur2(key.encode())) & 0x7FFFFFFF


def partition_of(message: BrokerMessage, partitions: Sequence[int]) -> int:
    """As the Java client for keys; without one by the id, so that a duplicate falls where the first one did."""
    number = message.id.int if message.key is None else hash_of(message.key)
    return partitions[number % len(partitions)]


def waves(messages: Sequence[BrokerMessage], indices: Iterable[int]) -> list[list[int]]:
    """A key that goes on in another topic waits there for its confirmation: partitions know nothing of each other."""
    found: list[list[int]] = []
    last: dict[str, tuple[str, int]] = {}
    for index in indices:
        message, wave = messages[index], 0
        if message.key is not None:
            topic, wave = last.get(message.key, (message.topic, 0))
            wave += topic != message.topic
            last[message.key] = (message.topic, wave)
        if wave == len(found):
            found.append([])
        found[wave].append(index)
    return found


class Call:
    """Outcomes of one call. After a failure the rest of a key is held; what failed together with others, or for the
    producer's loss of count, is left in `again`, to be tried alone."""

    def __init__(self, messages: Sequence[BrokerMessage], *, deadline: float, max_bytes: int) -> None:
        self.messages = messages
        self.outcomes: list[Outcome | None] = [None] * len(messages)
        self.again: list[int] = []
        self.is_late = False
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._stopped: dict[str, int] = {}

    @property
    def left(self) -> float:
        return max(self._deadline - asyncio.get_running_loop().time(), 0.0)

    def refuse_impossible(self) -> None:
        """What the broker would refuse is not sent at all: there it would spoil the batch it is in."""
        for index, message in enumerate(self.messages):
            if not _TOPIC.fullmatch(message.topic):
                self.fail(index, kafka.InvalidTopicError())
            elif size_of(message) > self._max_bytes:
                self.fail(index, kafka.MessageSizeTooLargeError())
            else:
                self.is_held(index)

    def open(self) -> list[int]:
        return [index for index, outcome in enumerate(self.outcomes) if outcome is None]

    def fail(self, index: int, error: BaseException) -> None:
        self.outcomes[index] = outcome_of(error)
        if (key := self.messages[index].key) is not None:
            self._stopped[key] = min(index, self._stopped.get(key, index))

    def is_held(self, index: int) -> bool:
        """Has one of its key before it failed? Then it is not tried."""
        key = self.messages[index].key
        if key is not None and self._stopped.get(key, index) < index:
            self.outcomes[index] = HELD
            return True
        return False

    async def send(self, producer: Any, wave: Sequence[int], partitions: Mapping[str, Sequence[int]]) -> None:
        """A wave: all partitions at once."""
        chains: dict[Place, list[int]] = defaultdict(list)
        for index in wave:
            if not self.is_held(index):
                message = self.messages[index]
                chains[message.topic, partition_of(message, partitions[message.topic])].append(index)
        await asyncio.gather(*(self._chain(producer, place, chain) for place, chain in chains.items()))

    async def send_alone(
        self, producer: Any, index: int, partitions: Mapping[str, Sequence[int]]
    ) -> BaseException | None:
        """One message in a batch of its own: what fails now fails for its own sake."""
        message = self.messages[index]
        batch, _ = self._fill(producer, [index])
        error = await self._confirm(producer, batch, (message.topic, partition_of(message, partitions[message.topic])))
        if error is None:
            self.outcomes[index] = SENT
        else:
            self.fail(index, error)
        return error

    async def _chain(self, producer: Any, place: Place, chain: list[int]) -> None:
        while chain:
            batch, count = self._fill(producer, chain)
            taken, chain = chain[:count], chain[count:]
            error = await self._confirm(producer, batch, place)
            if error is None:
                for index in taken:
                    self.outcomes[index] = SENT
                continue
            if kind_of(error) is Kind.unavailable:
                for index in [*taken, *chain]:
                    self.fail(index, error)
            else:
                # Which of them it was is not known, and the partition's sequence has a gap now.
                self.again += [*taken, *chain]
            return

    def _fill(self, producer: Any, indices: Sequence[int]) -> tuple[Any, int]:
        """As many as a batch takes, and at least one."""
        batch = producer.create_batch()
        count = 0
        for index in indices:
            message = self.messages[index]
            key = None if message.key is None else message.key.encode()
            headers = [(name, value.encode()) for name, value in message.headers.items()]
            if batch.append(timestamp=None, key=key, value=message.payload, headers=headers) is None:
                break
            count += 1
        batch.close()
        return batch, count

    async def _confirm(self, producer: Any, batch: Any, place: Place) -> BaseException | None:
        topic, partition = place
        try:
            async with asyncio.timeout(self.left):
                confirmation: Awaitable[Any] = await producer.send_batch(batch, topic, partition=partition)
                await confirmation
        except TimeoutError:
            self.is_late = True
            return TimeoutError()
        except (kafka.KafkaError, OSError) as error:
            return cast("BaseException", error)
        return None


def size_of(message: BrokerMessage) -> int:
    headers = sum(len(name) + len(value.encode()) + 10 for name, value in message.headers.items())
    return len(message.payload) + len((message.key or "").encode()) + headers + OVERHEAD
