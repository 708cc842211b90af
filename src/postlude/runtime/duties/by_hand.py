"""A duty by hand: whoever asks takes its lane like a worker does, for one turn, and gives it back."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import uuid4

import msgspec

from postlude.errors import DutyTaken, NotFound
from postlude.ports.clock import Clock
from postlude.ports.ownership import OwnedLane, Ownership
from postlude.ports.upkeep import DutyRun, Upkeep
from postlude.runtime.duties.duty import PREFIX, Duty
from postlude.runtime.renewal import Renewal

STOP = 5.0
"""Seconds that the renewing thread may take to end."""


class DutyView(msgspec.Struct, frozen=True, kw_only=True):
    """A duty, who has it, and what came of it last."""

    name: str
    owner: str | None = None
    ran_at: datetime | None = None
    next_at: datetime | None = None
    rows: int | None = None
    seconds: float | None = None
    error: str | None = None


class Maintenance:
    """The duties of a database."""

    def __init__(
        self, upkeep: Upkeep, ownership: Ownership, duties: Sequence[Duty], *, clock: Clock, lease: float
    ) -> None:
        self._upkeep = upkeep
        self._ownership = ownership
        self._duties = {duty.title: duty for duty in duties}
        self._clock = clock
        self._lease = lease

    @property
    def names(self) -> list[str]:
        return list(self._duties)

    async def duties(self) -> list[DutyView]:
        """Those of this version, whether or not a worker ever had them."""
        stored = {row["name"]: row for row in await self._upkeep.duties()}
        return [
            DutyView(**{**stored.get(duty.name, {}), "name": title}) for title, duty in sorted(self._duties.items())
        ]

    async def run(self, name: str, told: Callable[[int], None] | None = None) -> DutyRun:
        """One turn of a duty, now. Refused while a worker has it: it does the same, and is named."""
        duty = self._duties.get(name.removeprefix(PREFIX))
        if duty is None:
            raise NotFound(f"there is no duty {name!r}", hint=f"Known: {', '.join(self._duties)}.")
        async with self._owned(duty) as is_ours:
            run = await duty.turn(told, is_ours)
        await duty.record(run)
        return run

    @asynccontextmanager
    async def _owned(self, duty: Duty) -> AsyncIterator[Callable[[], bool]]:
        worker, sent = uuid4(), self._clock.monotonic()
        name = f"{platform.node()}:{os.getpid()} by hand"
        await self._ownership.bury_workers()
        await self._ownership.register(worker, name, {duty.name: (duty.kind, duty.lanes_in_all)}, self._lease)
        renewal = Renewal(self._ownership, self._clock, lease=self._lease, is_alive=lambda: True)
        try:
            lanes: list[OwnedLane] = await self._ownership.claim_lanes(worker, duty.name, duty.lanes_in_all)
            if not lanes:
                raise await self._taken(duty)
            renewal.start(worker, sent)
            yield lambda: not renewal.is_buried
        finally:
            await asyncio.to_thread(renewal.stop, STOP)
            await self._ownership.leave(worker)

    async def _taken(self, duty: Duty) -> DutyTaken:
        owner = next((row["owner"] for row in await self._upkeep.duties() if row["name"] == duty.name), None)
        return DutyTaken(f"{owner or 'another worker'} has the duty {duty.title} and does it by itself")
