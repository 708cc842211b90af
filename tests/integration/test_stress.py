"""Order and ownership under stress, together: workers that freeze and are buried, callers that commit late, deliveries
that fail. Nothing is lost, every key stays in order, and nobody settles after his burial (promises 2, 4 and 5)."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import pytest

from postlude import Postlude
from postlude.core.outcome import HELD, SENT, Failed, Fault, Outcome, Unavailable
from postlude.errors import DatabaseUnavailable
from postlude.ports.broker import BrokerFeatures
from postlude.ports.ownership import Lease
from postlude.runtime.worker import Worker
from tests.engine import Noted, notes, query, routed_app, until

KEYS = 120
WORKERS = 4
LEASE = 0.8
FAILURES, OUTAGES = 0.12, 0.005
PATIENCE = 150.0

BURIALS = {
    "sqlite": (
        "CREATE TABLE burial (worker blob, at real)",
        """CREATE TRIGGER buried AFTER DELETE ON postlude_worker BEGIN
               INSERT INTO burial VALUES (OLD.id, (julianday('now') - 2440587.5) * 86400.0); END""",
    ),
    "postgres": (
        "CREATE TABLE burial (worker uuid, at timestamptz)",
        """CREATE FUNCTION buried() RETURNS trigger LANGUAGE plpgsql AS
               'BEGIN INSERT INTO burial VALUES (OLD.id, clock_timestamp()); RETURN OLD; END'""",
        "CREATE TRIGGER buried BEFORE DELETE ON postlude_worker FOR EACH ROW EXECUTE FUNCTION buried()",
    ),
}
"""The database itself notes when a worker ended."""

LATE_SETTLES = {
    # Times of SQLite have milliseconds, and a receipt has the time at which its transaction began.
    "sqlite": "SELECT count(*) FROM postlude_receipt r JOIN burial b USING (worker) WHERE r.settled_at > b.at + 0.002",
    "postgres": "SELECT count(*) FROM postlude_receipt r JOIN burial b USING (worker) WHERE r.settled_at > b.at",
}


class Appended(msgspec.Struct, frozen=True):
    """One committed append, by the test's own clock."""

    key: str
    n: int
    began: float
    committed: float


class Ice:
    """A process may stand still: then it neither renews nor publishes, and afterwards goes on where it was."""

    def __init__(self) -> None:
        self.thawed = asyncio.Event()
        self.thawed.set()

    @property
    def is_frozen(self) -> bool:
        return not self.thawed.is_set()


class FrozenLease:
    """The renewing connection of a process that may stand still."""

    def __init__(self, lease: Lease, ice: Ice) -> None:
        self._lease = lease
        self._ice = ice

    async def renew(self, worker: Any, lease: float) -> bool:
        if self._ice.is_frozen:
            raise DatabaseUnavailable("frozen")
        return await self._lease.renew(worker, lease)


class Ownership:
    """A store's ownership side, with that lease."""

    def __init__(self, ownership: Any, ice: Ice) -> None:
        self._ownership = ownership
        self._ice = ice

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[FrozenLease]:
        async with self._ownership.lease() as lease:
            yield FrozenLease(lease, self._ice)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ownership, name)


class Recorder:
    """The broker that all workers publish to; each has a connection of its own to it."""

    def __init__(self, chance: random.Random, *, ordered_failure: bool) -> None:
        self.chance = chance
        self.ordered_failure = ordered_failure
        self.received: list[tuple[str, int]] = []

    def connect(self, ice: Ice) -> Connection:
        return Connection(self, ice)


class Connection:
    def __init__(self, recorder: Recorder, ice: Ice) -> None:
        self._recorder = recorder
        self._ice = ice
        self.features = BrokerFeatures(ordered_failure=recorder.ordered_failure)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Any]) -> list[Outcome]:
        chance, stopped = self._recorder.chance, set[str]()
        outcomes: list[Outcome] = []
        await asyncio.sleep(chance.random() * 0.01)
        for noted in notes(messages):
            await self._ice.thawed.wait()
            outcome = HELD if noted.key in stopped else self._one(noted, chance.random())
            if outcome is not SENT and self._recorder.ordered_failure:
                stopped.add(noted.key)
            outcomes.append(outcome)
            if chance.random() < 0.02:
                await asyncio.sleep(0)
        await self._ice.thawed.wait()
        return outcomes

    def _one(self, noted: Noted, chance: float) -> Outcome:
        if chance < OUTAGES:
            return Unavailable(Fault("Throttled"))
        if chance < OUTAGES + FAILURES:
            return Failed(Fault("Refused"))
        self._recorder.received.append((noted.key, noted.n))
        return SENT


class Member:
    """A worker with a store and connections of its own, as if it were a process."""

    def __init__(self, url: str, recorder: Recorder) -> None:
        self.ice = Ice()
        self.app = routed_app(
            url,
            lane={"lease": LEASE},
            relay={"batch_size": 50},
            retry={"base_delay_seconds": 0.02, "max_backoff_seconds": 0.1, "max_attempts": 1000},
            pool={"max": 4},
        )
        opened: dict[str, Any] = self.app._opened_brokers
        opened["default"] = recorder.connect(self.ice)  # it only publishes
        self.app.store.ownership = Ownership(self.app.store.ownership, self.ice)
        self.stop = asyncio.Event()
        self.worker: Worker | None = None
        self.task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self.app.start()
        self.worker = self.app.engine.new_worker(duties=False)
        await self.worker.start()
        self.stop.clear()
        self.task = asyncio.create_task(self.worker.run(self.stop))

    async def end(self) -> None:
        self.ice.thawed.set()
        self.stop.set()
        if self.task is not None:
            await self.task
            self.task = None


async def write(
    app: Postlude, chance: random.Random, numbers: Iterator[int], events: int, late: float
) -> list[Appended]:
    """Append to random keys, one transaction after another, some of them open for a while."""
    appended = []
    for _ in range(events):
        key, n = f"key-{chance.randrange(KEYS)}", next(numbers)
        began = time.monotonic()
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key=key, n=n))
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * late)
        appended.append(Appended(key, n, began, time.monotonic()))
        await asyncio.sleep(chance.random() * 0.02)
    return appended


async def trouble(members: list[Member], chance: random.Random, is_over: asyncio.Event) -> int:
    """Freeze one after another beyond its lease, or let it end in order and begin again."""
    freezes = 0
    while not is_over.is_set():
        member = chance.choice(members)
        if member.ice.is_frozen:
            member.ice.thawed.set()
        elif chance.random() < 0.25:
            await member.end()
            await member.begin()
        else:
            member.ice.thawed.clear()
            freezes += 1
        await asyncio.sleep(LEASE * (0.3 + chance.random() * 0.5))
    for member in members:
        member.ice.thawed.set()
    return freezes


async def is_empty(url: str) -> bool:
    return not await query(url, "SELECT 1 FROM postlude_delivery")


def out_of_order(appended: list[Appended], received: list[tuple[str, int]]) -> list[tuple[Appended, Appended]]:
    """Pairs of a key where the second append began after the first had committed, and yet was delivered first."""
    first = {(key, n): place for place, (key, n) in reversed(list(enumerate(received)))}
    by_key = defaultdict(list)
    for one in appended:
        by_key[one.key].append(one)
    return [
        (earlier, later)
        for same in by_key.values()
        for earlier in same
        for later in same
        if earlier.committed < later.began and first[earlier.key, earlier.n] > first[later.key, later.n]
    ]


ORDERED = pytest.mark.parametrize("ordered_failure", [True, False], ids=["ordered", "unordered"])


@pytest.mark.slow
@pytest.mark.timeout(300)
@ORDERED
async def test_order_and_ownership_hold_together_on_sqlite(sqlite_url: str, ordered_failure: bool) -> None:
    await _stress(sqlite_url, "sqlite", ordered_failure=ordered_failure)


@pytest.mark.slow
@pytest.mark.timeout(300)
@ORDERED
async def test_order_and_ownership_hold_together_on_postgres(any_postgres_url: str, ordered_failure: bool) -> None:
    await _stress(any_postgres_url, "postgres", ordered_failure=ordered_failure)


async def _stress(url: str, kind: str, *, ordered_failure: bool) -> None:
    for statement in BURIALS[kind]:
        await query(url, statement)
    chance = random.Random(20_26)
    recorder = Recorder(chance, ordered_failure=ordered_failure)
    members = [Member(url, recorder) for _ in range(WORKERS)]
    caller, numbers, is_over = routed_app(url), count(), asyncio.Event()
    writers, events, late = (10, 250, 0.06) if kind == "postgres" else (4, 500, 0.002)
    async with caller:
        for member in members:
            await member.begin()
        troubling = asyncio.create_task(trouble(members, chance, is_over))
        try:
            batches = await asyncio.gather(*(write(caller, chance, numbers, events, late) for _ in range(writers)))
            is_over.set()
            freezes = await troubling
            await until(lambda: is_empty(url), patience=PATIENCE)
        finally:
            is_over.set()
            await asyncio.wait([troubling])
            for member in members:
                await member.end()
                await member.app.close()

    appended = [one for batch in batches for one in batch]
    assert len(appended) == writers * events
    assert {(one.key, one.n) for one in appended} == set(recorder.received), "0 lost, 0 invented"
    assert out_of_order(appended, recorder.received) == []
    ((crashes,),) = await query(url, "SELECT sum(crashes) FROM postlude_lane")
    assert freezes >= 3
    assert crashes > 0
    assert await query(url, LATE_SETTLES[kind]) == [(0,)]
    assert await query(url, "SELECT count(*), count(DISTINCT event_id) FROM postlude_receipt") == [(len(appended),) * 2]
