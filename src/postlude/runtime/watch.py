"""The watch: looks for new rows, for all destinations of a worker at once, and tells the relays which lanes to read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from postlude.core.horizon import Horizon
from postlude.errors import DatabaseUnavailable
from postlude.ports.clock import Clock
from postlude.ports.reading import Reading
from postlude.runtime.outage import Outage
from postlude.runtime.relay import Relay

MAX_NEWS = 1000
LIVELY = 1.0
"""For that long after the last news, look as often as allowed."""


class Watch:
    def __init__(
        self, reading: Reading, horizon: Horizon, relays: Mapping[str, Relay], clock: Clock, outage: Outage
    ) -> None:
        self._reading = reading
        self._horizon = horizon
        self._relays = relays
        self._clock = clock
        self._outage = outage
        self._hinted = asyncio.Event()
        self._lively_until = 0.0
        self._unknown = True

    def hint(self) -> None:
        """There is, or soon will be, something new: look now and look often for a while."""
        self._lively_until = self._clock.monotonic() + LIVELY
        self._hinted.set()

    async def run(self, shortest: float, longest: float) -> None:
        """For ever. Idle, one look at the sequence decides whether to read at all."""
        interval = shortest
        while True:
            try:
                if await self.look():
                    self._lively_until = self._clock.monotonic() + LIVELY
            except DatabaseUnavailable as error:
                self._outage.report("watch", error)
                await asyncio.sleep(longest)
            lively = self._clock.monotonic() < self._lively_until
            interval = shortest if lively else min(interval * 2, longest)
            await self._pause(interval)

    async def look(self) -> bool:
        """Ask once; tell the relays. True when there was news."""
        last = await self._reading.last_seq()
        if last == self._horizon.last and self._horizon.is_settled and not self._unknown:
            return False
        stable = self._horizon.stable
        after = self._horizon.observe(last, await self._reading.appenders())
        # Until the answer is here, what happened is unknown; if it never comes, every lane must be read.
        unknown, self._unknown = self._unknown, True
        news = await self._reading.news(after, MAX_NEWS)
        self._unknown = False
        if unknown or sum(one.entries for one in news) >= MAX_NEWS:
            for relay in self._relays.values():
                relay.flag_all()
            return True
        for one in news:
            relay_of = self._relays.get(one.destination)
            if relay_of is not None:
                relay_of.flag(one.lane, one.priority, stable, pending=one.pending)
        return bool(news)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 may swallow a cancellation
                await self._hinted.wait()
        self._hinted.clear()
