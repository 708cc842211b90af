"""What all duties share: an owner by lease, a rhythm, a record of each turn, and an end that waits for nobody."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from postlude.core.delivery import Fence
from postlude.errors import PostludeError
from postlude.ports.ownership import OwnedLane
from postlude.ports.upkeep import DutyRun, Upkeep
from postlude.runtime.watchers import Watchers

log = logging.getLogger("postlude.duties")
PREFIX = "duty:"
NOT_ALLOWED = "42501"
"""SQLSTATE: the user of this worker lacks a privilege, as in least privilege it should."""


class Round(msgspec.Struct, frozen=True):
    """A bounded piece of a duty: what it did (rows, or partitions), and whether there is more to do at once."""

    rows: int = 0
    more: bool = False


class Duty(ABC):
    """A duty has one lane and no deliveries: owning the lane is having the duty."""

    kind = "duty"
    lanes_in_all = 1
    paused = False
    title = ""
    first_after = 1.0

    def __init__(self, upkeep: Upkeep, interval: float) -> None:
        self.name = PREFIX + self.title
        self.epochs: dict[int, int] = {}
        self._upkeep = upkeep
        self._interval = interval

    @property
    def lanes(self) -> set[int]:
        return set(self.epochs)

    @abstractmethod
    async def round(self) -> Round:
        """Do a bounded piece."""

    async def turn(self, told: Callable[[int], None] | None, is_ours: Callable[[], bool]) -> DutyRun:
        """Round after round until there is no more to do, or it is not ours any more. `told` gets the rows so far."""
        rows, began = 0, time.monotonic()
        while True:
            done = await self.round()
            rows += done.rows
            if told is not None:
                told(rows)
            if not (done.more and is_ours()):
                return DutyRun(rows=rows, seconds=time.monotonic() - began)
            await asyncio.sleep(0)

    async def run(self, watchers: Watchers) -> None:
        """For ever: when it is this worker's turn, do it; an error waits for the next one."""
        await asyncio.sleep(self.first_after)
        while True:
            if self.lanes:
                await self._take_turn(watchers)
            await asyncio.sleep(self._interval if self.lanes else min(1.0, self._interval))

    async def _take_turn(self, watchers: Watchers) -> None:
        began = time.monotonic()
        try:
            run = await self.turn(None, lambda: bool(self.lanes))
        except Exception as error:  # noqa: BLE001 - housekeeping that fails must not stop deliveries
            run = DutyRun(rows=0, seconds=time.monotonic() - began, error=self._told(error))
        watchers.duty(self.name, run)
        try:
            await self.record(run, next_in=self._interval)
        except PostludeError as error:
            log.warning("%s: %s", self.name, error.args[0])

    async def record(self, run: DutyRun, next_in: float | None = None) -> None:
        """For `postlude maintenance list`."""
        await self._upkeep.record_duty(self.name, msgspec.structs.replace(run, next_in=next_in))

    def _told(self, error: Exception) -> str:
        """Of errors that are not ours only the class is kept: their text may hold anything."""
        if isinstance(error, PostludeError):
            log.warning("%s: %s", self.name, error.args[0])
            return f"{type(error).__name__}: {error.args[0]}"
        if getattr(error, "sqlstate", None) == NOT_ALLOWED:
            log.warning("%s is for the owner of the tables: `postlude maintenance run %s`", self.name, self.title)
            return "only the owner of the tables may do it"
        log.error("%s failed; it is tried again in %g s", self.name, self._interval, exc_info=error)
        return type(error).__name__

    def own(self, worker: UUID, lanes: Sequence[OwnedLane]) -> None:  # noqa: ARG002 - a duty writes under no fence
        self.epochs.update((lane.lane, lane.epoch) for lane in lanes)

    def disown(self, lanes: set[int]) -> None:
        for lane in lanes:
            self.epochs.pop(lane, None)

    def shed(self, count: int) -> None:  # noqa: B027 - there is one lane; it is kept until the worker ends
        """Nothing to give."""

    def shed_lanes(self) -> Fence | None:
        return None
