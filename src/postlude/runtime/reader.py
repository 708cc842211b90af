"""What a relay reads, and when."""

from __future__ import annotations

from collections.abc import Callable

from postlude.core.delivery import Delivery
from postlude.core.intake import Intake
from postlude.ports.destination import Terms
from postlude.runtime.batch import RelayParts

DUE_EVERY = 0.05
DUE_IDLE = 0.5
"""How often to look for due work: often while some is known to wait, else now and then."""
SWEEP_EVERY = 1.0
PROBE = 1000
Wanted = Callable[[Delivery], bool]


class Reader:
    def __init__(self, terms: Terms, intake: Intake, lanes: Callable[[], set[int]], parts: RelayParts) -> None:
        self._terms = terms
        self._intake = intake
        self._lanes = lanes
        self._parts = parts
        self.next_due = 0.0
        """When to look for due work again."""
        self._next_sweep = 0.0
        self._due_interval = DUE_EVERY

    def look_at_once(self) -> None:
        self.next_due = 0.0

    def look_often(self) -> None:
        """Some due work is known to wait."""
        self._due_interval = DUE_EVERY

    async def read(self, wanted: Wanted) -> int:
        """Probe freed keys, then the hot read, then the due read: in this order a freed key is never overtaken."""
        await self._probe()
        return await self._read_pending(wanted) + await self._read_due(wanted)

    async def _probe(self) -> None:
        now = self._parts.clock.monotonic()
        sweep = now >= self._next_sweep
        if sweep:
            self._next_sweep = now + SWEEP_EVERY
        suspects = self._intake.suspects(all_keys=sweep)
        for start in range(0, len(suspects), PROBE):
            self._intake.freed(await self._parts.reading.freed(self._terms.name, suspects[start : start + PROBE]))

    async def _read_pending(self, wanted: Wanted) -> int:
        intake, stable = self._intake, self._parts.horizon.stable
        tracks, limit = intake.floors.plan(self._terms.batch * self._terms.parallel)
        if not tracks:
            return 0
        intake.begin()
        try:
            rows = await self._parts.reading.read_pending(self._terms.name, tracks, limit)
        except BaseException:
            intake.floors.unread(tracks)
            raise
        accepted = intake.accept(rows, wanted)
        intake.came_back(tracks, rows, limit, stable)
        intake.floors.progress(len(rows), accepted)
        return accepted

    async def _read_due(self, wanted: Wanted) -> int:
        if self._parts.clock.monotonic() < self.next_due:
            return 0
        self._intake.wake_postponed()
        lanes = sorted(self._lanes())
        limit = max(1, self._terms.batch * self._terms.parallel // max(1, len(lanes)))
        self._intake.begin()
        rows = await self._parts.reading.read_due(self._terms.name, lanes, limit, self._intake.waiting_due)
        self._due_interval = DUE_EVERY if rows else min(self._due_interval * 1.5, DUE_IDLE)
        self.next_due = self._parts.clock.monotonic() + self._due_interval
        held = len(self._intake.blocked.due)
        accepted = self._intake.accept(rows, wanted)
        waiting = len(self._intake.blocked.due) - held
        if waiting:
            self.next_due = 0.0  # what waits for its key is left out from now on: look behind it at once
        return accepted + waiting
