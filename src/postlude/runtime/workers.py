"""The workers of one database in this process: those that run, and those that come for a short while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from postlude.ports.clock import Clock
from postlude.runtime.worker import Worker

PAUSE = 0.02
"""Between two passes, when nothing could be tried and something is due."""


class Workers:
    def __init__(
        self, new: Callable[[], Worker], visiting: Callable[[], Worker], start: Callable[[], Awaitable[None]]
    ) -> None:
        self._new = new
        self._visiting = visiting
        self._start = start
        self._running: list[Worker] = []

    def hint(self) -> bool:
        """Tell those that run that somebody appended; is there any?"""
        for worker in self._running:
            worker.hint()
        return bool(self._running)

    @asynccontextmanager
    async def working(self, stop: asyncio.Event) -> AsyncIterator[tuple[Worker, asyncio.Task[None]]]:
        """One that runs meanwhile, and its task: it ends when `stop` is set, or by an error."""
        await self._start()
        worker = self._new()
        await worker.start()
        self._running.append(worker)
        task = asyncio.create_task(worker.run(stop))
        try:
            yield worker, task
        finally:
            stop.set()
            try:
                await task
            finally:
                self._running.remove(worker)

    async def run_once(self, limit: int | None) -> int:
        async with self._visit() as worker:
            settled, _ = await worker.drain_once(limit)
            return settled

    async def drain(self, timeout: float, clock: Clock) -> int:
        deadline = clock.monotonic() + timeout
        total = 0
        async with self._visit() as worker:
            while True:
                settled, tried = await worker.drain_once()
                total += settled
                if not tried and not await worker.has_due():
                    return total
                if clock.monotonic() >= deadline:
                    return total
                if not tried:
                    await asyncio.sleep(PAUSE)
                    await worker.tick()

    @asynccontextmanager
    async def _visit(self) -> AsyncIterator[Worker]:
        """For cron, serverless, tests."""
        await self._start()
        worker = self._visiting()
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()
