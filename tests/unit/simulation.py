"""The real relay, watch and intake around a tiny database, in one event loop where chance decides who goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from postlude.core.delivery import Delivery, Fence
from postlude.core.horizon import Horizon
from postlude.core.lanes import lane_of
from postlude.core.lifecycle import Status, blocks
from postlude.core.outcome import HELD, SENT, SETTLED, Failed, Fault, Outcome, Parked, Policy, Rejected, Unavailable
from postlude.core.ready import Turn
from postlude.core.retry import Retry
from postlude.errors import DatabaseUnavailable
from postlude.ports.destination import Entry, Terms
from postlude.ports.ownership import OwnedLane
from postlude.runtime.batch import RelayParts
from postlude.runtime.outage import Outage
from postlude.runtime.relay import Relay
from postlude.runtime.watch import Watch
from postlude.runtime.watchers import Watchers
from tests.unit.simulated_database import NAME, Clock, Database, Options, Row, Turns, is_orphan

US, OTHERS = UUID(int=1), UUID(int=2)
FAULT = Fault("Refused")


class Broken(AssertionError):
    """A promise was broken; the message says by which entries."""


class Somewhere:
    """A destination that fails in every way there is, and sees to it that the promises are kept."""

    def __init__(self, world: World) -> None:
        self._world = world
        options = world.options
        self._under_way: Counter[str] = Counter()
        self.terms = Terms(
            name=NAME,
            kind="broker",
            lanes=options.lanes,
            batch=options.batch,
            parallel=options.parallel,
            ordered_failure=options.ordered,
            ordered_lanes=options.ordered_lanes,
            claim_for=0.5 if options.claims else None,
        )

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:
        keys = [entry.delivery.key for entry in entries if entry.delivery.key is not None]
        self._under_way.update(keys)
        if not self._world.options.ordered and any(count > 1 for count in self._under_way.values()):
            self._world.broken.append(f"two entries of a key are under way: {self._under_way}")
        await self._world.turns.mine()
        stopped: set[str] = set()
        is_down = self._world.happens(0.05)
        outcomes = [self._try(one, fence, stopped, is_down) for one in entries]
        await self._world.turns.mine()
        self._under_way.subtract(keys)
        return outcomes

    def _try(self, entry: Entry, fence: Fence, stopped: set[str], is_down: bool) -> Outcome:
        delivery = entry.delivery
        if is_down:
            return Unavailable(FAULT)
        row = self._world.row(delivery.seq)
        order = self._world.options.order(row)
        if order in stopped:
            return HELD
        outcome = self._world.fate(row)
        if outcome is SENT and self._world.options.settles:
            outcome = self._settle(row, delivery, fence)
        elif outcome is SENT:
            self._world.sent(row)
        if outcome is not SENT and self._world.options.ordered and order is not None:
            stopped.add(order)
        return outcome

    def _settle(self, row: Row, delivery: Delivery, fence: Fence) -> Outcome:
        """As a handler's transaction does: the effect and the settling are one."""
        db = self._world.db
        if db._as_read(fence, delivery.seq, delivery.status, delivery.attempts) is None:
            return HELD
        self._world.sent(row)
        db.settle(row)
        return SETTLED


class World:
    """Writers, operators, other workers, and the one worker that is watched."""

    def __init__(self, rng: Random, options: Options) -> None:
        self.rng = rng
        self.options = options
        self.turns = Turns(rng)
        clock = Clock(self.turns, rng)
        self.db = Database(self.turns, clock, rng, options)
        horizon = Horizon()
        self._policy = Policy(Retry(max_attempts=4, base_delay=0.1, jitter=1), options.on_dead_blocks)
        reading: Any = self.db
        outage = Outage(clock)
        parts = RelayParts(
            reading=reading,
            settling=reading,
            horizon=horizon,
            clock=clock,
            policy=lambda _: self._policy,
            watchers=Watchers([]),
            turn=Turn(),
            outage=outage,
            is_trusted=self._is_trusted,
        )
        self.relay = Relay(Somewhere(self), parts)
        if options.max_keys is not None:
            self.relay._intake.blocked._max_keys = options.max_keys
        self._watch = Watch(reading, horizon, {NAME: self.relay}, clock, outage)
        self._names = 0
        self.broken: list[str] = []
        self.writers: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ what happens

    async def run(self, turns: int) -> None:
        """Trouble for so many turns, then none: in the end nothing may be left."""
        for lane in range(self.options.lanes):
            self._own(lane)
        loops = [asyncio.create_task(self._watching()), asyncio.create_task(self._relaying())]
        try:
            for _ in range(turns):
                self._disturb()
                await self._turn(loops)
            self.db.trouble = False
            await self._drain(loops)
        finally:
            for task in (*loops, *self.writers, *self.relay._tasks):
                task.cancel()
            await asyncio.gather(*loops, *self.writers, *self.relay._tasks, return_exceptions=True)

    async def _drain(self, loops: list[asyncio.Task[None]]) -> None:
        for turn in range(20_000):
            if not self.db.rows and not self.writers:
                return
            if turn % 100 == 0:
                self._operate()
            await self._turn(loops)
        left = ", ".join(f"{row.seq} {row.key} {row.status}" for row in self.db.rows.values())
        raise Broken(f"never delivered: {left}")

    async def _turn(self, loops: list[asyncio.Task[None]]) -> None:
        await self.turns.next()
        for task in loops:
            if task.done():
                task.result()
        if self.broken:
            raise Broken(self.broken[0])

    def _disturb(self) -> None:
        if self.happens(0.1):
            task = asyncio.create_task(self._write())
            self.writers.add(task)
            task.add_done_callback(self.writers.discard)
        if self.happens(0.02):
            self._operate()
        if self.options.lanes_move and self.happens(0.02):
            self._move(self.rng.randrange(self.options.lanes))

    async def _write(self) -> None:
        """A transaction that appends, goes on, and commits or not."""
        self._names += 1
        name = f"writer {self._names}"
        rows: list[Row] = []
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.db.appending[name] = rows
            self.db.last += 1
            rows.append(self._row(self.db.last, self.rng.choice(self.options.keys)))
            await self.turns.mine()
        if not self.happens(0.1):
            for row in rows:
                row.committed = self.turns.taken
                self.db.rows[row.seq] = row
        del self.db.appending[name]

    def _row(self, seq: int, key: str | None) -> Row:
        lane = lane_of(key, UUID(int=seq), self.options.lanes)
        row = Row(seq, key, lane, Status.pending, self.db.clock.monotonic(), begun=self.turns.taken)
        if self.happens(0.1):
            row.status, row.is_in_order = Status.scheduled, False
            row.available_at += self.rng.random()
        return row

    def _operate(self) -> None:
        """Dead letters are requeued or discarded."""
        for row in [row for row in self.db.visible() if row.status is Status.dead]:
            if self.rng.random() < 0.7 and not is_orphan(row.seq):
                row.status, row.blocks, row.attempts, row.starts = Status.failed, row.key is not None, 0, 0
                row.available_at = self.db.clock.monotonic()
            else:
                row.is_in_order = False
                self.db.settle(row)

    def _move(self, lane: int) -> None:
        """A lane is lost, other workers deliver some of it, and it comes back; we may hear of the loss late."""
        if lane not in self.relay.lanes:
            return
        _, epoch = self.db.owners[lane]
        self.db.owners[lane] = (OTHERS, epoch + 1)
        if self.rng.random() < 0.5:
            self.relay.disown({lane})
        passed: set[str | None] = set()
        for row in sorted(self.db.visible(), key=lambda row: row.seq):
            deliverable = row.status is Status.pending or self.db.is_due(row)
            if row.lane == lane and deliverable and not self.db.is_blocked(row.key, row.seq):
                order = self.options.order(row)
                if self.happens(0.7) and (order is None or order not in passed):
                    self._deliver_elsewhere(row)
                else:
                    passed.add(order)
        self.relay.disown({lane})
        self._own(lane)

    def _deliver_elsewhere(self, row: Row) -> None:
        if self.happens(0.2) and not self.options.ordered_lanes:
            row.status, row.blocks = Status.failed, blocks(Status.failed, row.key)
            row.available_at = self.db.clock.monotonic() + self.rng.random()
        else:
            self.sent(row)
            self.db.settle(row)

    def _own(self, lane: int) -> None:
        _, epoch = self.db.owners.get(lane, (US, 0))
        self.db.owners[lane] = (US, epoch + 1)
        cautious = self.db.last if self.options.lanes_move and self.rng.random() < 0.5 else 0
        self.relay.own(US, [OwnedLane(lane, epoch + 1, cautious)])

    async def _watching(self) -> None:
        while True:
            await self.turns.mine()
            try:
                await self._watch.look()
            except DatabaseUnavailable:
                continue

    async def _relaying(self) -> None:
        while True:
            await self.turns.mine()
            try:
                await self.relay._read()
            except DatabaseUnavailable:
                continue
            finally:
                self.db.trusted = True
            self.relay._launch()

    def _is_trusted(self) -> bool:
        return self.db.trusted

    # ------------------------------------------------------------ what must hold

    def happens(self, chance: float) -> bool:
        return self.db.trouble and self.rng.random() < chance

    def row(self, seq: int) -> Row:
        return self.db.rows.get(seq) or self.db.settled[seq]

    def fate(self, row: Row) -> Outcome:
        if not self.happens(0.25):
            return SENT
        ways: list[Outcome] = [HELD, Rejected(FAULT)]
        if not self.options.ordered_lanes:
            ways += [Failed(FAULT), Failed(FAULT), Parked(datetime.now(UTC))]
        outcome = self.rng.choice(ways)
        leaves = isinstance(outcome, Parked) or (
            not self.options.on_dead_blocks
            and (isinstance(outcome, Rejected) or (isinstance(outcome, Failed) and row.attempts >= 3))
        )
        row.is_in_order = row.is_in_order and not leaves
        return outcome

    def sent(self, row: Row) -> None:
        """Promise 4: what committed before another append of its key began is first delivered before it."""
        if row.first_sent is not None:
            if not (self.options.losses or self.options.lanes_move):
                self.broken.append(f"{row.seq} was delivered twice")
            return
        row.first_sent = self.turns.taken
        order = self.options.order(row)
        if order is None or not row.is_in_order:
            return
        for one in (*self.db.rows.values(), *self.db.settled.values()):
            before = one.committed is not None and one.committed < row.begun and self.options.order(one) == order
            if before and one.is_in_order and one.first_sent is None:
                self.broken.append(f"{row.seq} was delivered before {one.seq} of {order}")
