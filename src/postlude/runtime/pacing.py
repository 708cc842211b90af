"""A rate kept by one worker: calls start evenly, never in bursts."""

from __future__ import annotations

import asyncio

from postlude.ports.clock import Clock


class Pace:
    def __init__(self, rate: float | None, clock: Clock) -> None:
        self._step = 0.0 if rate is None else 1.0 / rate
        self._clock = clock
        self._next = 0.0

    async def wait(self) -> None:
        """Until the next call may start."""
        if not self._step:
            return
        now = self._clock.monotonic()
        start = max(now, self._next)
        self._next = start + self._step
        if start > now:
            await asyncio.sleep(start - now)
