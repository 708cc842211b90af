"""Publishing to Redis Streams, and trimming them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from redis.exceptions import ResponseError

from postlude.brokers.redis.faults import outcome_of
from postlude.brokers.redis.link import Command, Link
from postlude.brokers.redis.options import RedisOptions
from postlude.brokers.redis.subscription import RedisSubscription, subscribed
from postlude.brokers.redis.trimming import trim
from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import SENT, Fault, Outcome, Rejected
from postlude.ports.broker import BrokerFeatures, Start

BULK = 512 * 1024 * 1024
"""The largest value Redis takes, unless it was told otherwise."""


class RedisBroker:
    """An entry has the fields `_id`, `_key` and `_data`, which no header can be named, and one a header."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._options, rest = RedisOptions.taken_from(options or {})
        self.features = BrokerFeatures(ordered_by_key=self._options.single_active)
        self._link = Link(url, rest, self._options.timeout)
        self._limit: int | None = None
        self._under_way = 0
        self._idle = asyncio.Event()

    async def open(self) -> None:
        """Nothing: what is first published connects, and says what is wrong."""

    async def close(self) -> None:
        if self._under_way:
            try:
                async with asyncio.timeout(self._options.timeout):
                    await self._idle.wait()
            except TimeoutError:
                pass  # it gets no answer now
        await self._link.close()

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]:
        if not messages:
            return []
        with self._busy():
            limit = await self._largest()
            if isinstance(limit, BaseException):
                return [outcome_of(limit)] * len(messages)
            prepared = [self._prepare(message, limit) for message in messages]
            commands = [one for one in prepared if not isinstance(one, Rejected)]
            answers = iter(await self._link.ask(commands) if commands else [])
            return [one if isinstance(one, Rejected) else _outcome(next(answers)) for one in prepared]

    def subscribe(
        self, topics: Sequence[str], group: str, *, start: Start = "earliest", prefetch: int = 500
    ) -> AbstractAsyncContextManager[RedisSubscription]:
        return subscribed(self._link, self._options, topics, group, start=start, prefetch=prefetch)

    async def trim(self, topic: str, limit: int = 10_000) -> int:
        """Remove about that many entries at most, oldest first, that every group has acknowledged. How many it was."""
        return await trim(self._link, topic, limit)

    def _prepare(self, message: BrokerMessage, limit: int) -> Command | Rejected:
        if len(message.payload) > limit:
            return Rejected(Fault("TooLarge", "TOOLARGE"))
        command: list[str | bytes | int] = ["XADD", message.topic]
        if self._options.max_length is not None:
            command += ["MAXLEN", "~", self._options.max_length]
        command += ["*", "_id", str(message.id), "_data", message.payload]
        try:
            if message.key is not None:
                command += ["_key", message.key.encode()]
            for name, value in message.headers.items():
                command += [name, value.encode()]
        except UnicodeEncodeError as error:
            return outcome_of(error)  # type: ignore[return-value] # the table says so
        return command

    async def _largest(self) -> int | BaseException:
        """Asked before the first message: one that is larger would cost everybody the connection."""
        if self._limit is None:
            (answer,) = await self._link.ask([("CONFIG", "GET", "proto-max-bulk-len")])
            if isinstance(answer, BaseException) and not isinstance(answer, ResponseError):
                return answer
            # Hosted servers do not let everybody look.
            self._limit = int(answer[1]) if isinstance(answer, list) and len(answer) == 2 else BULK
        return self._limit

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()


def _outcome(answer: Any) -> Outcome:
    return outcome_of(answer) if isinstance(answer, BaseException) else SENT
