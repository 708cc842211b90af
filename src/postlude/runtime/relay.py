"""The relay: reads the owned lanes of one destination and keeps it busy.

A loop reads ahead while batches run as tasks. Everything here may be forgotten at any time: the database has the
truth, and a new owner starts from the beginning of its lanes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from uuid import UUID

from postlude.core.delivery import Delivery, Fence
from postlude.core.intake import Intake
from postlude.errors import DatabaseUnavailable
from postlude.ports.destination import Destination
from postlude.ports.ownership import OwnedLane
from postlude.runtime.batch import RETRY_FIRST, RETRY_LONGEST, Batch, RelayParts, Way
from postlude.runtime.breaker import Breaker
from postlude.runtime.prefetch import Prefetch
from postlude.runtime.reader import DUE_IDLE, Reader, Wanted

log = logging.getLogger("postlude.relay")

PREFETCH = 64


def everything(_: Delivery) -> bool:
    return True


class Relay:
    def __init__(self, destination: Destination, parts: RelayParts) -> None:
        self.destination = destination
        self.terms = destination.terms
        self.name = self.terms.name
        self.kind = self.terms.kind
        self.lanes_in_all = self.terms.lanes
        self.paused = False
        self.settled = 0
        self.tried = 0
        self._parts = parts
        self._intake = Intake(
            ordered_failure=self.terms.ordered_failure,
            ordered_lanes=self.terms.ordered_lanes,
            commits_first=self.terms.claim_for is not None,
            turn=parts.turn,
        )
        self._reader = Reader(self.terms, self._intake, lambda: self.lanes, parts)
        self._breaker = Breaker()
        self._prefetch = Prefetch(parts.reading, max(PREFETCH, self.terms.batch))
        self._way = Way(destination, self._intake, self._breaker, self._prefetch, parts)
        self._worker = UUID(int=0)
        self.epochs: dict[int, int] = {}
        self._leaving: set[int] = set()
        self._tasks: dict[asyncio.Task[None], Batch] = {}
        self._delivering = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._goes_on = False
        self._forgiven: list[int] = []

    # ------------------------------------------------------------ lanes

    @property
    def lanes(self) -> set[int]:
        """The lanes it owns and keeps."""
        return set(self.epochs) - self._leaving

    def own(self, worker: UUID, lanes: Sequence[OwnedLane]) -> None:
        self._worker = worker
        for lane in lanes:
            self.epochs[lane.lane] = lane.epoch
            self._intake.own(lane.lane, lane.cautious_to)
        if lanes:
            self._reader.look_at_once()
            self._wake.set()

    def disown(self, lanes: set[int]) -> None:
        """Lanes that are lost, at once."""
        self._intake.disown(lanes)
        for lane in lanes:
            self.epochs.pop(lane, None)
            self._leaving.discard(lane)

    def shed(self, count: int) -> None:
        """Stop working on that many lanes, those with nothing under way first; `shed_lanes` tells when they are free."""
        busy = self._intake.ready.lanes()
        surplus = sorted(self.lanes, key=lambda lane: lane in busy)[:count]
        self._intake.disown(surplus)
        self._leaving.update(surplus)

    def shed_lanes(self) -> Fence | None:
        """The lanes that were shed and have nothing under way any more; they are gone from here."""
        idle = self._leaving - self._intake.ready.lanes()
        if not idle:
            return None
        fence = Fence(self._worker, self.name, {lane: self.epochs[lane] for lane in idle})
        self.disown(idle)
        return fence

    # ------------------------------------------------------------ hints

    def flag(self, lane: int, priority: int, since: int, *, pending: bool) -> None:
        """Rows above `since` appeared in a lane."""
        if pending:
            self._intake.floors.flag(lane, priority, since)
        else:
            self._reader.look_often()
        self._wake.set()

    def flag_all(self) -> None:
        """Rows may have appeared anywhere."""
        self._intake.floors.flag_all()
        self._reader.look_at_once()
        self._wake.set()

    def is_hung(self, now: float) -> bool:
        """Does a delivery take longer than its destination may? Asked from the renewing thread, hence the copy."""
        return any(now - batch.began > self.terms.patience for batch in list(self._tasks.values()))

    # ------------------------------------------------------------ running

    async def run(self) -> None:
        """Until `stop`. Loses the database for as long as it takes."""
        delay, self._goes_on = 0.0, True
        while not self._stopping:
            try:
                await self._read()
                delay = 0.0
            except DatabaseUnavailable as error:
                delay = min(max(RETRY_FIRST, delay * 2), RETRY_LONGEST)
                self._parts.outage.report(self.name, error)
            self._launch()
            await self._wait(delay * (0.5 + self._parts.clock.chance()))

    async def drain_once(self, limit: int | None, up_to: int) -> int:
        """One pass over what is due: every entry up to a seq at most once. Gives the deliveries settled."""
        before, seen, passed = self.settled, set[int](), set[str | int | None]()

        def wanted(row: Delivery) -> bool:
            order = row.lane if self.terms.ordered_lanes else row.key
            if row.seq in seen:  # tried in this pass and still there: what stands behind it must not overtake it
                passed.add(order)
            if row.seq in seen or row.seq > up_to or (limit is not None and len(seen) >= limit):
                return False
            if order is not None and order in passed:
                return False
            if not row.blocked:
                seen.add(row.seq)
            return True

        self._intake.reread_all()
        while True:
            self._reader.look_at_once()
            found = await self._read(wanted)
            self._launch()
            if self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            elif not self._may_read or not (found or self._intake.floors.has_dirty):
                return self.settled - before

    def stop(self) -> None:
        """Start nothing more; what is under way goes on."""
        self._stopping = True
        self._wake.set()

    async def quiesce(self, timeout: float) -> None:
        """Wait for what is under way; what does not end in time is cancelled and left to the next owner."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        for task in list(self._tasks):
            log.warning("%s: a delivery did not end in time and is left to the next owner", self.name)
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    async def _wait(self, least: float) -> None:
        if least:
            await asyncio.sleep(least)
        if self._intake.floors.has_dirty and self._may_read:
            await asyncio.sleep(0)
            return
        now = self._parts.clock.monotonic()
        timeout = max(0.001, self._reader.next_due - now) if self._may_read else self._breaker.wait(now) or DUE_IDLE
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # wait_for of Python 3.11 may swallow a cancellation
                await self._wake.wait()
        self._wake.clear()

    # ------------------------------------------------------------ reading

    @property
    def _may_read(self) -> bool:
        """Is there a use for more entries?"""
        if self.paused or not self.epochs or self._breaker.wait(self._parts.clock.monotonic()):
            return False
        if not self._parts.horizon.is_known:
            return False  # no floor could move: the same rows would be read twice
        return self._intake.ready.startable < self.terms.batch * self.terms.parallel

    async def _read(self, wanted: Wanted = everything) -> int:
        if not self._may_read:
            return 0
        await self.forgive()
        found = await self._reader.read(wanted)
        if found:
            await self._fetch_ahead()
        return found

    async def _fetch_ahead(self) -> None:
        """The events of what comes next: single ones together, and those of a batch while the one before is under way."""
        batch = self.terms.batch
        if batch == 1 or self._delivering >= self.terms.parallel:
            await self._prefetch.fetch([one.event_id for one in self._intake.ready.next(max(PREFETCH, batch))])

    async def forgive(self) -> None:
        """Attempts that began and were lost to an outage or a stop: this process is alive, so they did not kill it."""
        if self._forgiven:
            await self._parts.settling.forgive(self.name, self._forgiven)
            self._forgiven = []

    # ------------------------------------------------------------ delivering

    def _launch(self) -> None:
        """Start as many batches as the destination takes."""
        while self._delivering < self.terms.parallel and not (self.paused or self._stopping):
            if self._breaker.wait(self._parts.clock.monotonic()) or not self._parts.is_trusted():
                return
            taken = self._intake.ready.take(self._breaker.limit(self.terms.batch))
            if not taken:
                return
            batch = Batch(self._way, Fence(self._worker, self.name, dict(self.epochs)), taken)
            self._delivering += 1
            task = asyncio.create_task(self._run(batch))
            self._tasks[task] = batch
            task.add_done_callback(self._ended)

    async def _run(self, batch: Batch) -> None:
        """The slot is free for the next batch while this one is being settled."""
        try:
            try:
                await batch.deliver()
            finally:
                self.tried += batch.tried
                self._delivering -= 1
                self._reader.look_often()
                self._wake.set()
            self._go_on(batch)
            await batch.settle()
        except DatabaseUnavailable as error:
            self._parts.outage.report(self.name, error)
        finally:
            self.settled += batch.settled
            if batch.lost_lanes:
                self.disown({lane for lane, epoch in batch.lost_lanes.items() if self.epochs.get(lane) == epoch})
            self._forgiven += batch.give_up()

    def _go_on(self, batch: Batch) -> None:
        """With what came of it, at once: the watch would find it too, after some round trips."""
        if not (self._goes_on and batch.followed_by):
            return
        for delivery, event in batch.followed_by:
            if self._intake.accept([delivery]):
                self._prefetch.keep(event)
        self._launch()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: a delivery broke", self.name, exc_info=task.exception())
