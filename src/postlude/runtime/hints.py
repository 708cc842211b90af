"""Hints to other processes that there is work. They are only latency: polling finds the work without them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from postlude.runtime.watch import LIVELY

AFTER = 0.005
EVERY = LIVELY / 2
"""A worker that was told looks often for a while: telling it again meanwhile would only cost the producer a commit."""

PATIENCE = 1.0
"""For one that is under way when the app is closed; ending its statement would cost more than its end."""


class Hints:
    """Of one database, sent by the event loop that appends: soon after the first append, then now and then."""

    def __init__(self, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self._due: asyncio.TimerHandle | None = None
        self._under_way: asyncio.Task[None] | None = None
        self._sent_at = float("-inf")

    def soon(self) -> None:
        """Without an event loop there is nobody to send it."""
        if self._due is not None:
            return
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time() + AFTER, self._sent_at + EVERY), self._begin)

    async def close(self) -> None:
        """One that is under way would open the connections again that are about to be closed."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        task, self._under_way = self._under_way, None
        if task is not None:
            await asyncio.wait([task], timeout=PATIENCE)
            task.cancel()
            await asyncio.wait([task])

    def _begin(self) -> None:
        self._due = None
        self._sent_at = asyncio.get_running_loop().time()
        self._under_way = asyncio.create_task(self._send())
        # Whatever goes wrong with it is looked at, so that nobody complains of it.
        self._under_way.add_done_callback(lambda done: None if done.cancelled() else done.exception())
