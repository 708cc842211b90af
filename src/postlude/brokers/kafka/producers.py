"""The producer in use, and those that end: made when needed, replaced when one has failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka

from postlude.errors import BrokerUnavailable


class Running:
    """A producer that was started, and how many calls use it."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.users = 0
        self.is_retired = False


class Producers:
    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._name = name
        self._options = options
        self._running: Running | None = None
        self._starting = asyncio.Lock()
        self._endings: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, patience: float) -> AsyncIterator[Running]:
        """The one in use, or a new one. Raises BrokerUnavailable when it does not start in that time."""
        running = await self._ready(patience)
        running.users += 1
        try:
            yield running
        finally:
            running.users -= 1
            if running.is_retired:
                self._end_unused(running)

    def retire(self, running: Running) -> None:
        """The next call gets a new one; this one ends with the last call that uses it."""
        if self._running is running:
            self._running = None
        running.is_retired = True

    async def close(self, patience: float) -> None:
        if (running := self._running) is not None:
            self.retire(running)
            self._end_unused(running)
        if self._endings:
            await asyncio.wait(list(self._endings), timeout=patience)

    async def _ready(self, patience: float) -> Running:
        try:
            async with asyncio.timeout(patience), self._starting:
                if self._running is None:
                    self._running = Running(await self._start())
                return self._running
        except (kafka.KafkaError, OSError) as error:  # TimeoutError is one
            raise BrokerUnavailable(f"{self._name} cannot be reached ({type(error).__name__})") from error

    async def _start(self) -> Any:
        producer = AIOKafkaProducer(**self._options, enable_idempotence=True, acks="all")
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        return producer

    def _end_unused(self, running: Running) -> None:
        if running.users == 0:
            # In the background: a broker that hangs may keep a request for as long as requests last.
            ending = asyncio.create_task(_end(running.producer))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)


async def _end(producer: Any) -> None:
    """Without flushing, unlike the client's own way: every call has waited for what it sent, and what it gave up must
    not be retried for ever and arrive hours later."""
    producer._closed = True  # noqa: SLF001
    if (sender := producer._sender.sender_task) is not None and not sender.done():  # noqa: SLF001
        sender.cancel()
        await asyncio.wait([sender])
    await producer.client.close()
