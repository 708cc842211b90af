"""A tiny database and the real relay, watch and intake around it, in one event loop where chance decides who goes on.

Every statement travels: a request waits for its turn, then it sees the rows as they are at that moment, then its answer
waits for a turn, while others commit, fail, settle and take lanes away. So a relay acts on stale answers all the time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from postlude.core.delivery import Delivery, Fence, StoredEvent, Verdict
from postlude.core.horizon import Horizon
from postlude.core.lanes import lane_of
from postlude.core.lifecycle import Status, blocks
from postlude.core.outcome import HELD, SENT, SETTLED, Failed, Fault, Outcome, Parked, Policy, Rejected, Unavailable
from postlude.core.retry import Retry
from postlude.errors import DatabaseUnavailable
from postlude.ports.destination import Entry, Terms
from postlude.ports.store import News, OwnedLane
from postlude.runtime.relay import Relay, RelayParts
from postlude.runtime.watch import Watch
from postlude.runtime.watchers import Watchers

NAME = "there"
US, OTHERS = UUID(int=1), UUID(int=2)
DUE = (Status.failed, Status.scheduled, Status.claimed)
FAULT = Fault("Refused")


class Broken(AssertionError):
    """A promise was broken; the message says by which entries."""


@dataclass(frozen=True)
class Options:
    """What kind of destination, and what may happen."""

    ordered: bool = False
    batch: int = 4
    parallel: int = 3
    claims: bool = False
    settles: bool = False
    lanes: int = 2
    lanes_move: bool = False
    on_dead_blocks: bool = False
    max_keys: int | None = None
    keys: tuple[str | None, ...] = ("a", "b", "c", None)


@dataclass
class Row:
    """A delivery as stored, and what only the judge of the simulation knows of it."""

    seq: int
    key: str | None
    lane: int
    status: Status
    available_at: float
    begun: int
    committed: int | None = None
    blocks: bool = False
    attempts: int = 0
    starts: int = 0
    first_sent: int | None = None
    is_in_order: bool = True
    """False: delayed, parked or a dead letter that is skipped, so that later ones of its key need not wait."""


class Turns:
    """Everything that waits for its turn."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._waiting: list[asyncio.Future[None]] = []
        self.taken = 0

    async def mine(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    async def next(self) -> None:
        """Let somebody go on, until everybody waits again."""
        for _ in range(5):
            await asyncio.sleep(0)
        self.taken += 1
        if self._waiting:
            chosen = self._waiting.pop(self._rng.randrange(len(self._waiting)))
            if not chosen.done():
                chosen.set_result(None)


class Clock:
    """A hundredth of a second a turn; so is the database's."""

    ahead = 0.0

    def __init__(self, turns: Turns, rng: Random) -> None:
        self._turns = turns
        self.chance = rng.random

    def monotonic(self) -> float:
        return self._turns.taken / 100


@dataclass
class Database:
    """Rows with a sequence, transactions that commit late, lanes with epochs: both sides of the store the relay sees."""

    turns: Turns
    clock: Clock
    rng: Random
    rows: dict[int, Row] = field(default_factory=dict)
    settled: dict[int, Row] = field(default_factory=dict)
    appending: dict[str, list[Row]] = field(default_factory=dict)
    owners: dict[int, tuple[UUID, int]] = field(default_factory=dict)
    last: int = 0
    trouble: bool = True
    trusted: bool = True

    # ------------------------------------------------------------ what is true now

    def visible(self) -> list[Row]:
        return [row for row in self.rows.values() if row.committed is not None]

    def is_blocked(self, row_key: str | None, seq: int) -> bool:
        return row_key is not None and any(
            row.blocks and row.key == row_key and row.seq < seq for row in self.visible()
        )

    def is_due(self, row: Row) -> bool:
        return row.status in DUE and row.available_at <= self.clock.monotonic()

    def owns(self, fence: Fence, lane: int) -> bool:
        return self.owners.get(lane) == (fence.worker, fence.epochs.get(lane))

    def settle(self, row: Row) -> None:
        self.settled[row.seq] = self.rows.pop(row.seq)

    def write(self, row: Row, verdict: Verdict) -> None:
        row.status, row.blocks, row.attempts, row.starts = (
            verdict.status,
            verdict.blocks,
            verdict.attempts,
            verdict.starts,
        )
        row.available_at = self.clock.monotonic() + verdict.delay

    # ------------------------------------------------------------ reading

    async def last_seq(self) -> int:
        return await self._ask(lambda: self.last)

    async def appenders(self) -> frozenset[str]:
        return await self._ask(lambda: frozenset(self.appending))

    async def news(self, after: int, limit: int) -> list[News]:
        def found() -> list[News]:
            rows = [row for row in sorted(self.visible(), key=lambda row: row.seq) if row.seq > after][:limit]
            return [News(NAME, row.lane, 1, row.status is Status.pending, 1) for row in rows]

        return await self._ask(found)

    async def read_pending(self, _: str, tracks: Sequence[Any], limit: int) -> list[Delivery]:
        asked = [(track.lane, track.priority, track.floor) for track in tracks]

        def found() -> list[Delivery]:
            chosen: list[Row] = []
            for lane, priority, floor in asked:
                rows = [row for row in self.visible() if row.lane == lane and row.seq > floor and priority == 1]
                pending = [row for row in rows if row.status is Status.pending]
                chosen += sorted(pending, key=lambda row: row.seq)[:limit]
            return self._deliveries(chosen)

        return await self._ask(found)

    async def read_due(self, _: str, lanes: Sequence[int], limit: int, excluding: Iterable[int]) -> list[Delivery]:
        left_out = set(excluding)

        def found() -> list[Delivery]:
            chosen: list[Row] = []
            for lane in lanes:
                rows = [row for row in self.visible() if row.lane == lane and row.seq not in left_out]
                due = [row for row in rows if self.is_due(row)]
                chosen += sorted(due, key=lambda row: (row.available_at, row.seq))[:limit]
            return self._deliveries(chosen)

        return await self._ask(found)

    async def freed(self, _: str, keys: Sequence[tuple[str, int]]) -> list[str]:
        return await self._ask(lambda: [key for key, seq in keys if not self.is_blocked(key, seq)])

    async def events(self, event_ids: Sequence[UUID]) -> dict[UUID, StoredEvent]:
        return await self._ask(lambda: {event_id: _event(event_id) for event_id in event_ids})

    # ------------------------------------------------------------ settling

    async def start(self, fence: Fence, deliveries: Sequence[Delivery], lease: float) -> set[int]:
        read = [(one.seq, one.status, one.attempts) for one in deliveries]

        def started() -> set[int]:
            seqs = set()
            for seq, status, attempts in read:
                row = self._as_read(fence, seq, status, attempts)
                if row is not None:
                    row.status, row.blocks = Status.claimed, row.key is not None
                    row.attempts, row.starts = row.attempts + 1, row.starts + 1
                    row.available_at = self.clock.monotonic() + lease
                    seqs.add(seq)
            return seqs

        return await self._ask(started)

    async def settle_sent(self, fence: Fence, deliveries: Sequence[Delivery]) -> set[int]:
        seqs = [one.seq for one in deliveries]

        def left() -> set[int]:
            for seq in seqs:
                row = self.rows.get(seq)
                if row is not None and self.owns(fence, row.lane):
                    self.settle(row)
            return {seq for seq in seqs if seq in self.rows}

        return await self._ask(left)

    async def record(self, fence: Fence, verdicts: Sequence[Verdict]) -> set[int]:
        def changed() -> set[int]:
            seqs = set()
            for verdict in verdicts:
                row = self._as_read(fence, verdict.seq, verdict.was_status, verdict.was_attempts)
                if row is not None:
                    self.write(row, verdict)
                    seqs.add(row.seq)
            return seqs

        return await self._ask(changed)

    # ------------------------------------------------------------ inside

    async def _ask(self, execute: Any) -> Any:
        """There and back. Now and then the connection is lost, before or after the statement was executed."""
        await self.turns.mine()
        lost = self.trouble and self.rng.random() < 0.02
        answer = execute() if not lost or self.rng.random() < 0.5 else None
        await self.turns.mine()
        if lost:
            self.trusted = False  # so that a settle gives up instead of waiting
            raise DatabaseUnavailable("the connection was lost")
        return answer

    def _as_read(self, fence: Fence, seq: int, status: Status, attempts: int) -> Row | None:
        row = self.rows.get(seq)
        if row is None or (row.status, row.attempts) != (status, attempts) or not self.owns(fence, row.lane):
            return None
        return row

    def _deliveries(self, rows: Iterable[Row]) -> list[Delivery]:
        return [
            Delivery(
                row.seq,
                UUID(int=row.seq),
                row.lane,
                row.key,
                1,
                row.status,
                row.attempts,
                None,
                row.starts,
                self.is_blocked(row.key, row.seq),
            )
            for row in sorted(rows, key=lambda row: row.seq)
        ]


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
        stopped: set[str | None] = set()
        is_down = self._world.happens(0.05)
        outcomes = [HELD if one.delivery.key in stopped else self._try(one, fence, stopped, is_down) for one in entries]
        await self._world.turns.mine()
        self._under_way.subtract(keys)
        return outcomes

    def _try(self, entry: Entry, fence: Fence, stopped: set[str | None], is_down: bool) -> Outcome:
        delivery = entry.delivery
        if is_down:
            return Unavailable(FAULT)
        row = self._world.row(delivery.seq)
        outcome = self._world.fate(row)
        if outcome is SENT and self._world.options.settles:
            outcome = self._settle(row, delivery, fence)
        elif outcome is SENT:
            self._world.sent(row)
        if outcome is not SENT and self._world.options.ordered and not isinstance(outcome, Parked):
            stopped.add(delivery.key or object())  # type: ignore[arg-type]  # nothing equals it
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
        self.db = Database(self.turns, clock, rng)
        horizon = Horizon()
        self._policy = Policy(Retry(max_attempts=4, base_delay=0.1, jitter=1), options.on_dead_blocks)
        reading: Any = self.db
        parts = RelayParts(
            reading=reading,
            settling=reading,
            horizon=horizon,
            clock=clock,
            policy=lambda _: self._policy,
            watchers=Watchers([]),
            is_trusted=self._is_trusted,
        )
        self.relay = Relay(Somewhere(self), parts)
        if options.max_keys is not None:
            self.relay._intake.blocked._max_keys = options.max_keys
        self._watch = Watch(reading, horizon, {NAME: self.relay}, clock)
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
            if self.rng.random() < 0.7:
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
                if self.happens(0.7) and (row.key is None or row.key not in passed):
                    self._deliver_elsewhere(row)
                else:
                    passed.add(row.key)
        self.relay.disown({lane})
        self._own(lane)

    def _deliver_elsewhere(self, row: Row) -> None:
        if self.happens(0.2):
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
        outcome = self.rng.choice([Failed(FAULT), Failed(FAULT), Rejected(FAULT), Parked(datetime.now(UTC)), HELD])
        leaves = isinstance(outcome, Parked) or (
            not self.options.on_dead_blocks
            and (isinstance(outcome, Rejected) or (isinstance(outcome, Failed) and row.attempts >= 3))
        )
        row.is_in_order = row.is_in_order and not leaves
        return outcome

    def sent(self, row: Row) -> None:
        """Promise 4: what committed before another append of its key began is first delivered before it."""
        if row.first_sent is not None:
            return
        row.first_sent = self.turns.taken
        if row.key is None or not row.is_in_order:
            return
        for one in (*self.db.rows.values(), *self.db.settled.values()):
            before = one.committed is not None and one.committed < row.begun and one.key == row.key
            if before and one.is_in_order and one.first_sent is None:
                self.broken.append(f"{row.seq} was delivered before {one.seq} of key {row.key}")


def _event(event_id: UUID) -> StoredEvent:
    return StoredEvent(
        event_id, "noted", 1, "test", None, None, "noted", "application/json", b"{}", {}, "", None, None,
        datetime.now(UTC),
    )  # fmt: skip
