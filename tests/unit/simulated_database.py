"""The database of the simulation: rows with a sequence, transactions that commit late, lanes with epochs.

Every statement travels: a request waits for its turn, then it sees the rows as they are at that moment, then its answer
waits for a turn, while others commit, fail, settle and take lanes away. So a relay acts on stale answers all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from postlude.core.delivery import Delivery, Fence, StoredEvent, Verdict
from postlude.core.lifecycle import Status
from postlude.errors import DatabaseUnavailable
from postlude.ports.reading import News

T = TypeVar("T")
NAME = "there"
DUE = (Status.failed, Status.scheduled, Status.claimed)


@dataclass(frozen=True)
class Options:
    """What kind of destination, and what may happen."""

    ordered: bool = False
    ordered_lanes: bool = False
    batch: int = 4
    parallel: int = 3
    claims: bool = False
    settles: bool = False
    lanes: int = 2
    lanes_move: bool = False
    on_dead_blocks: bool = False
    max_keys: int | None = None
    losses: bool = True
    """Connections are lost. Without that, and with lanes that stay, nothing is delivered twice."""
    keys: tuple[str | None, ...] = ("a", "b", "c", None)

    def order(self, row: Row) -> str | None:
        """What a row must not be overtaken in."""
        return f"lane {row.lane}" if self.ordered_lanes else row.key


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
    options: Options
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
        def found() -> dict[UUID, StoredEvent]:
            orphans = {one for one in event_ids if is_orphan(one.int)}
            for row in [self.rows[one.int] for one in orphans if one.int in self.rows]:
                row.is_in_order = row.is_in_order and self.options.on_dead_blocks
            return {one: _event(one) for one in event_ids if one not in orphans}

        return await self._ask(found)

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

    async def forgive(self, destination: str, seqs: Sequence[int]) -> None:
        def forgiven() -> None:
            for row in [self.rows[seq] for seq in seqs if seq in self.rows]:
                row.starts = max(0, row.starts - 1)

        await self._ask(forgiven)

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

    async def _ask(self, execute: Callable[[], T]) -> T:
        """There and back. Now and then the connection is lost, before or after the statement was executed."""
        await self.turns.mine()
        lost = self.options.losses and self.trouble and self.rng.random() < 0.02
        if lost and self.rng.random() < 0.5:
            await self._lose()
        answer = execute()
        if lost:
            await self._lose()
        await self.turns.mine()
        return answer

    async def _lose(self) -> NoReturn:
        await self.turns.mine()
        self.trusted = False  # so that a settle gives up instead of waiting
        raise DatabaseUnavailable("the connection was lost")

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


def is_orphan(seq: int) -> bool:
    """The event of every 29th delivery is missing."""
    return seq % 29 == 0


def _event(event_id: UUID) -> StoredEvent:
    return StoredEvent(
        event_id, "noted", 1, "test", None, None, "noted", "application/json", b"{}", {}, "", None, None,
        datetime.now(UTC),
    )  # fmt: skip
