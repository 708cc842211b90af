"""Threads for handlers that are not async. A handler that never returns keeps its thread, and only that."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Threads:
    """So many at a time. Waiting for a free one is not part of a handler's time."""

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="postlude-handler")
        self._free = asyncio.Semaphore(count)

    async def start(self, call: Callable[[], Any]) -> Awaitable[Any]:
        """Start it as soon as a thread is free; the result is awaited apart."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future = self._executor.submit(contextvars.copy_context().run, call)
        future.add_done_callback(lambda _: _quietly(loop, self._free.release))
        return asyncio.wrap_future(future)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def _quietly(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    """A handler may outlive the loop it was started from."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(release)
