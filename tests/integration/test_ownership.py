"""Lanes have one owner: shared fairly, lost with the lease, and never written to by somebody who lost them (promise 5)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude import Context, Postlude
from postlude.brokers.memory import MemoryBroker
from postlude.core.delivery import Delivery, Fence, Verdict
from postlude.core.floors import Track
from postlude.core.lifecycle import Status
from postlude.core.outcome import Failed, Fault, Outcome
from postlude.errors import DatabaseUnavailable
from postlude.runtime.worker import Worker
from tests import worker_process
from tests.engine import (
    LANES,
    Noted,
    die,
    held,
    key_in,
    make_app,
    note,
    published,
    query,
    routed_app,
    settle_shares,
    until,
    workers,
)
from tests.worker_process import WorkerProcess

LEASE = 15.0
PAST_THE_LEASE = LEASE + 1


async def owners(url: str, destination: str = "default") -> dict[int, bytes | UUID | None]:
    rows = await query(url, f"SELECT lane, owner FROM postlude_lane WHERE destination = '{destination}'")
    return dict(rows)


async def shares(url: str) -> list[int]:
    """How many lanes each owner has, most first; lanes without an owner do not count."""
    owned = Counter(owner for owner in (await owners(url)).values() if owner is not None)
    return sorted(owned.values(), reverse=True)


def lanes_of(worker: Worker, destination: str = "default") -> set[int]:
    return worker.relays[destination].lanes


# ---------------------------------------------------------------- sharing


async def test_lanes_are_shared_fairly_as_workers_join_and_leave(database_url: str) -> None:
    app = routed_app(database_url)
    async with app, workers(app, 3) as (first, second, third):
        await settle_shares(first, second, third)
        assert [len(lanes_of(worker)) for worker in (first, second, third)] == [22, 21, 21]
        assert set.union(*map(lanes_of, (first, second, third))) == set(range(LANES))
        assert await shares(database_url) == [22, 21, 21]

        await second.stop()
        await settle_shares(first, third)
        assert await shares(database_url) == [32, 32]

        await first.stop()
        await settle_shares(third)
        assert lanes_of(third) == set(range(LANES))


async def test_a_newcomer_moves_no_more_lanes_than_its_share(database_url: str) -> None:
    app = routed_app(database_url)
    live: list[Worker] = []
    moved = 0
    async with app:
        try:
            for _ in range(5):
                before = await owners(database_url)
                live.append(app.engine.new_worker(duties=False))
                await live[-1].start()
                await settle_shares(*live)
                after = await owners(database_url)
                moved += sum(before[lane] != after[lane] for lane in before)
                assert max(await shares(database_url)) - min(await shares(database_url)) <= 1
            assert moved == 32 + 21 + 16 + 12, "the least that fair shares need"

            before = await owners(database_url)
            await settle_shares(*live)
            assert await owners(database_url) == before, "nothing moves once it is fair"
        finally:
            for worker in live:
                await worker.stop(timeout=1)


async def test_a_lane_that_is_shed_is_handed_over_only_when_its_entry_has_ended(any_postgres_url: str) -> None:
    app = make_app(any_postgres_url)
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.on(Noted, name="handler")
    async def handle(noted: Noted) -> None:
        inside.set()
        await go_on.wait()

    async with app, workers(app, 1) as (first,):
        await note(app, "busy", 1)
        (busy,) = (await query(any_postgres_url, "SELECT lane FROM postlude_delivery"))[0]
        draining = asyncio.create_task(first.drain_once())
        await inside.wait()
        async with workers(app, 1) as (second,):
            await settle_shares(first, second)
            assert len(lanes_of(second, "handler:handler")) in (31, 32)
            assert busy not in lanes_of(second, "handler:handler")
            go_on.set()
            assert (await draining)[0] == 1
            await settle_shares(first, second)
            assert len(lanes_of(second, "handler:handler")) == 32


async def test_two_workers_knowing_different_destinations_get_only_their_own(database_url: str) -> None:
    billing, mailing, idle = make_app(database_url), make_app(database_url), make_app(database_url)
    handled: dict[str, list[int]] = {"billing": [], "mailing": []}

    def receive(name: str) -> Any:
        async def handle(noted: Noted) -> None:
            handled[name].append(noted.n)

        return handle

    for app, known in ((billing, ["billing"]), (mailing, ["mailing"]), (idle, ["billing", "mailing"])):
        for name in known:
            app.on(Noted, name=name)(receive(name))

    async with billing, mailing, idle:
        await note(idle, "a", 1)
        assert await idle.insight.unserved() == {"handler:billing": 1, "handler:mailing": 1}
        async with workers(billing) as (biller,):
            assert await idle.insight.unserved() == {"handler:mailing": 1}
            await biller.drain_once()
            assert handled == {"billing": [1], "mailing": []}
            async with workers(mailing) as (mailer,):
                await settle_shares(biller, mailer)
                assert await idle.insight.unserved() == {}
                assert len(lanes_of(biller, "handler:billing")) == LANES
                assert len(lanes_of(mailer, "handler:mailing")) == LANES
                await mailer.drain_once()
        assert handled == {"billing": [1], "mailing": [1]}
        assert await idle.insight.unserved() == {}


async def test_shutdown_releases_lanes_at_once(database_url: str) -> None:
    app = routed_app(database_url)
    async with app, workers(app, 2) as (first, second):
        await settle_shares(first, second)
        await first.stop()
        assert await shares(database_url) == [32]
        await second.tick()
        assert lanes_of(second) == set(range(LANES))
        assert await query(database_url, "SELECT sum(crashes) FROM postlude_lane") == [(0,)]
        assert [worker.id for worker in await app.insight.workers()] == [second.id]


# ---------------------------------------------------------------- losing the lease


async def test_lanes_are_taken_over_after_a_lease_ends(database_url: str) -> None:
    app = routed_app(database_url)
    async with app, workers(app, 1) as (first,):
        await note(app, "a", 1)
        await die(first)
        app.clock.advance(LEASE - 1)
        async with workers(app, 1) as (second,):
            assert lanes_of(second) == set(), "a lease that holds is respected"
        app.clock.advance(2)
        async with workers(app, 1) as (third,):
            assert lanes_of(third) == set(range(LANES))
            assert (await third.drain_once())[0] == 1
        assert published(app) == [1]


async def test_a_hung_loop_loses_its_lanes(database_url: str) -> None:
    """The thread could renew for ever; it does so only while the loop gives a beat."""
    app, other = routed_app(database_url, lane={"lease": 0.5, "stall": 0.2}), routed_app(database_url)
    async with app, other, workers(app, 1) as (hung,):
        assert lanes_of(hung) == set(range(LANES))
        async with other.worker() as healthy:  # with a lease that no loaded machine loses
            await until(lambda: lanes_of(healthy) == set(range(LANES)))
        assert healthy.id != hung.id
        assert await query(database_url, "SELECT min(crashes) FROM postlude_lane WHERE destination = 'default'") == [
            (1,)
        ]


async def test_a_worker_whose_delivery_never_ends_loses_its_lanes(any_postgres_url: str) -> None:
    """Here a broker that neither answers nor fails, beyond any patience."""
    app = routed_app(any_postgres_url, lane={"lease": 0.5})
    broker = app._opened_brokers["default"] = Gate()
    async with app, app.worker() as worker:
        relay = worker.relays["default"]
        relay.terms = msgspec.structs.replace(relay.terms, patience=0.3)
        await note(app, "a", 1)
        await broker.entered.wait()
        first = worker.id
        await until(lambda: _is_buried(any_postgres_url, first))
        broker.gate.set()
        await until(lambda: _is_empty(any_postgres_url))
    assert published(app)[0] == 1


async def test_loop_beats_keep_the_lease_of_a_worker_that_is_alive(database_url: str) -> None:
    """Long enough that a loaded machine does not stand still for it; watched until the first lease would have ended."""
    app = routed_app(database_url, lane={"lease": 3, "stall": 2.5})
    async with app, app.worker() as worker:
        first, deadline = worker.id, time.monotonic() + 3.5
        while time.monotonic() < deadline:
            assert await app.store.ownership.bury_workers() == 0
            await asyncio.sleep(0.05)
        assert worker.id == first


async def test_a_busy_loop_does_not_lose_its_lanes(any_postgres_url: str) -> None:
    """Blocked for several leases, but not for longer than `lane.stall`."""
    lease = 2.0
    app, other = routed_app(any_postgres_url, lane={"lease": lease, "stall": 30}), routed_app(any_postgres_url)
    freed: list[int] = []

    async def bury() -> None:
        deadline = time.monotonic() + 2.5 * lease
        async with other:
            while time.monotonic() < deadline:
                freed.append(await other.store.ownership.bury_workers())
                await asyncio.sleep(0.05)

    async with app, app.worker() as worker:
        first = worker.id
        elsewhere = threading.Thread(target=lambda: asyncio.run(bury()))
        elsewhere.start()
        elsewhere.join()  # this loop stands still meanwhile
        assert freed
        assert sum(freed) == 0
        assert worker.id == first
        await note(app, "a", 1)
        await until(lambda: published(app) == [1])


async def test_a_buried_worker_begins_again_under_a_new_id(database_url: str) -> None:
    app = routed_app(database_url, lane={"lease": 2})
    async with app, app.worker() as worker:
        await until(lambda: len(lanes_of(worker)) == LANES)
        first = worker.id
        await bury(app, worker)
        assert worker.id != first
        await note(app, "a", 1)
        await until(lambda: published(app) == [1])
        assert [live.id for live in await app.insight.workers()] == [worker.id]


@pytest.mark.parametrize("outcome", [None, Failed(Fault("Refused"))], ids=["sent", "failed"])
async def test_a_settle_of_a_buried_worker_does_not_cost_it_the_lanes_it_took_again(
    database_url: str, outcome: Failed | None
) -> None:
    """The stale settle is refused; the lanes that the worker owns by then have another epoch and stay its own, and
    the entry is delivered under it."""
    app = routed_app(database_url, lane={"lease": 2})
    broker = app._opened_brokers["default"] = Gate()
    outcomes = [outcome]
    broker.fate = lambda _: outcomes.pop() if outcomes else None
    key = key_in(9)
    async with app, app.worker() as worker:
        await note(app, key, 1)
        await broker.entered.wait()
        await bury(app, worker)
        broker.gate.set()
        await note(app, key, 2)
        await until(lambda: _is_empty(database_url))
        assert list(dict.fromkeys(published(app))) == [1, 2]
        assert len(lanes_of(worker)) == LANES


async def test_a_worker_that_is_buried_while_it_begins_again_tries_once_more(any_postgres_url: str) -> None:
    app = routed_app(any_postgres_url, lane={"lease": 2})
    async with app, app.worker() as worker:
        await until(lambda: len(lanes_of(worker)) == LANES)
        first, register = worker.id, app.store.ownership.register
        lives: list[UUID] = []

        async def register_too_late(id_: UUID, *given: Any) -> None:
            lives.append(id_)
            await register(id_, *given)
            if len(lives) == 1:
                app.clock.advance(PAST_THE_LEASE)

        app.store.ownership.register = register_too_late  # type: ignore[method-assign, assignment]
        await bury(app, worker)
        assert len(lives) == 2
        assert worker.id not in (first, lives[0])


async def test_a_worker_that_is_buried_while_it_starts_begins_again(any_postgres_url: str) -> None:
    """A process that was stopped between its registration and its first look at the others."""
    app = routed_app(any_postgres_url)
    register = app.store.ownership.register
    lives: list[UUID] = []

    async def register_too_late(id_: UUID, *given: Any) -> None:
        lives.append(id_)
        await register(id_, *given)
        if len(lives) == 1:
            app.clock.advance(PAST_THE_LEASE)

    app.store.ownership.register = register_too_late  # type: ignore[method-assign, assignment]
    async with app, app.worker() as worker:
        await until(lambda: len(lanes_of(worker)) == LANES)
    assert len(lives) == 2


# ---------------------------------------------------------------- lost answers


class Faulty:
    """An ownership side whose answer is lost once, after or before the database did what it was asked."""

    def __init__(self, ownership: Any, method: str, *, is_done: bool) -> None:
        self._ownership = ownership
        self._method = method
        self._is_done = is_done
        self.faults_left = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._ownership, name)
        if name != self._method or not self.faults_left:
            return real

        async def faulty(*arguments: Any) -> Any:
            self.faults_left -= 1
            if self._is_done:
                await real(*arguments)
            raise DatabaseUnavailable("the connection was lost")

        return faulty


@pytest.mark.parametrize("is_done", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("method", ["claim_lanes", "release_lanes", "bury_workers", "live_workers", "paused"])
async def test_an_answer_that_is_lost_costs_no_lane(sqlite_url: str, method: str, is_done: bool) -> None:
    app = routed_app(sqlite_url)
    app.store.ownership = faulty = Faulty(app.store.ownership, method, is_done=is_done)
    async with app, workers(app, 2) as (first, second):
        await settle_shares(first, second)
        third = app.engine.new_worker(duties=False)
        try:
            faulty.faults_left = 1
            with contextlib.suppress(DatabaseUnavailable):
                await third.start()
            for _ in range(6):
                for worker in (first, second, third):
                    with contextlib.suppress(DatabaseUnavailable):
                        await worker.tick()
            assert faulty.faults_left == 0
            assert await shares(sqlite_url) == [22, 21, 21]
            assert sorted(len(lanes_of(worker)) for worker in (first, second, third)) == [21, 21, 22]
        finally:
            await third.stop(timeout=1)


# ---------------------------------------------------------------- fences


async def claim(app: Postlude, worker: UUID, count: int = LANES) -> Fence:
    lanes = await app.store.ownership.claim_lanes(worker, "default", count)
    return Fence(worker, "default", {lane.lane: lane.epoch for lane in lanes})


async def register(app: Postlude) -> UUID:
    worker = uuid4()
    await app.store.ownership.register(worker, "test", {"default": ("broker", LANES)}, LEASE)
    return worker


async def read(app: Postlude) -> list[Delivery]:
    return await app.store.reading.read_pending("default", [Track(lane, 1) for lane in range(LANES)], 100)


def failing(delivery: Delivery, status: Status = Status.failed) -> Verdict:
    blocks = status is Status.failed
    return Verdict(delivery.seq, delivery.lane, delivery.status, delivery.attempts, status, 1, blocks=blocks)


async def test_a_stale_verdict_after_burial_changes_nothing(database_url: str) -> None:
    app = routed_app(database_url)
    async with app:
        await note(app, "a", 1, 2, 3)
        stale = await claim(app, await register(app))
        rows = await read(app)
        app.clock.advance(PAST_THE_LEASE)
        successor = await register(app)
        assert await app.store.ownership.bury_workers() == LANES
        fresh = await claim(app, successor)
        assert await app.store.settling.record(fresh, [failing(rows[0], Status.dead)]) == {rows[0].seq}

        settling = app.store.settling
        assert await settling.record(stale, [failing(row) for row in rows]) == set()
        assert await settling.start(stale, rows, 1.0) == set()
        assert await settling.settle_sent(stale, rows) == {row.seq for row in rows}
        assert await app.insight.counts() == {"pending": 2, "claimed": 0, "failed": 0, "scheduled": 0, "dead": 1}


async def test_a_stale_worker_that_owns_the_lane_again_cannot_use_its_old_epoch(database_url: str) -> None:
    app = routed_app(database_url)
    async with app:
        await note(app, "a", 1)
        worker = await register(app)
        stale = await claim(app, worker)
        (row,) = await read(app)
        await app.store.ownership.release_lanes(stale)
        fresh = await claim(app, worker)
        assert await app.store.settling.settle_sent(stale, [row]) == {row.seq}
        assert await app.store.settling.settle_sent(fresh, [row]) == set()


async def test_lanes_with_different_epochs_are_settled_together(database_url: str) -> None:
    """Lanes have histories of their own: one epoch for all of them would let through only some."""
    app = routed_app(database_url)
    keys = [key_in(lane) for lane in range(8)]
    async with app:
        for n, key in enumerate(keys):
            await note(app, key, n)
        worker = await register(app)
        for turn in range(1, 4):  # lanes 0, 3 and 6 change hands more often than the others
            taken = await claim(app, worker)
            some = {lane: epoch for lane, epoch in taken.epochs.items() if lane % 3 == 0 and turn < 3}
            await app.store.ownership.release_lanes(Fence(worker, "default", some))
        owned = (await app.store.ownership.owned_lanes(worker))["default"]
        assert len(set(owned.values())) > 1
        rows = await read(app)
        behind = Fence(worker, "default", {**owned, 3: owned[3] - 1})
        assert await app.store.settling.settle_sent(behind, rows) == {row.seq for row in rows if row.lane == 3}
        assert await app.store.settling.settle_sent(Fence(worker, "default", owned), rows) == set()
        assert sum((await app.insight.counts()).values()) == 0


async def test_a_burial_is_refused_while_a_settle_holds_the_worker(postgres_url: str) -> None:
    """The settle began while the worker was alive, so it counts; the burial comes after it."""
    app = routed_app(postgres_url)
    async with app, held(postgres_url) as operator:
        await note(app, "a", 1)
        fence = await claim(app, await register(app))
        rows = await read(app)
        await operator.connection.execute("SELECT 1 FROM postlude_delivery FOR UPDATE")
        settle = asyncio.create_task(app.store.settling.settle_sent(fence, rows))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await until(lambda: _has_rows(postgres_url, waiting))

        app.clock.advance(PAST_THE_LEASE)
        assert await app.store.ownership.bury_workers() == 0
        await operator.rollback()
        assert await settle == set()
        assert await app.store.ownership.bury_workers() == LANES
        assert [receipt.worker for receipt in (await app.insight.event(rows[0].event_id)).receipts] == [fence.worker]


async def test_a_verdict_that_waited_for_an_operator_does_not_overwrite_him(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with app, held(postgres_url) as operator:
        await note(app, "a", 1)
        fence = await claim(app, await register(app))
        rows = await read(app)
        await operator.connection.execute("UPDATE postlude_delivery SET status = 'dead'")
        verdict = asyncio.create_task(app.store.settling.record(fence, [failing(rows[0])]))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await until(lambda: _has_rows(postgres_url, waiting))
        await operator.commit()
        assert await verdict == set()
        assert (await app.insight.counts())["dead"] == 1


# ---------------------------------------------------------------- after a crash


async def test_after_a_burial_a_lane_runs_one_entry_at_a_time_and_commits_the_attempt_first(database_url: str) -> None:
    app = make_app(database_url)
    lane = 11
    keys: list[str] = []
    for _ in range(4):
        keys.append(key_in(lane, without=keys))
    running, most = 0, 0
    seen: list[Any] = []

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        stored = await query(database_url, "SELECT status, attempts FROM postlude_delivery WHERE status <> 'pending'")
        seen.append((stored, ctx.attempt))
        running -= 1

    async with app:
        for n, key in enumerate(keys):
            await note(app, key, n)
        async with workers(app, 1) as (first,):
            await die(first)
            app.clock.advance(PAST_THE_LEASE)
            async with workers(app, 1) as (second,):
                assert (await second.drain_once())[0] == len(keys)
                assert most == 1
                assert seen == [([("claimed", 1)], 1)] * len(keys)

                seen.clear()
                for n, key in enumerate(keys):
                    await note(app, key, n)
                assert (await second.drain_once())[0] == len(keys)
                assert all(stored == [] for stored, _ in seen), "above the last seq at burial nothing is special"


async def test_an_entry_that_takes_its_worker_down_three_times_is_a_poison_dead_letter(database_url: str) -> None:
    app = make_app(database_url)
    deadly, innocent = key_in(11), key_in(11, without={key_in(11)})
    elsewhere = key_in(12)
    handled: list[str] = []
    dying = asyncio.Event()

    @app.on(Noted, name="handler")
    async def handle(noted: Noted) -> None:
        if noted.key == deadly:
            dying.set()
            await asyncio.Event().wait()
        handled.append(noted.key)

    async with app:
        for key in (deadly, innocent, elsewhere):
            await note(app, key, 1)
        lives = 0
        while True:
            lives += 1
            worker = app.engine.new_worker(duties=False)
            await worker.start()
            dying.clear()
            draining = asyncio.create_task(worker.drain_once())
            death = asyncio.create_task(dying.wait())
            await asyncio.wait([draining, death], return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                await worker.stop()
                death.cancel()
                break
            await _take_down(worker, draining)
            app.clock.advance(PAST_THE_LEASE)
        assert lives == 5, "killed once as usual, three times with care, and then no more"
        assert sorted(handled) == sorted([innocent, elsewhere])
        (letter,) = await app.insight.list(status="dead")
        assert (letter.key, letter.error) == (deadly, "Poison (delivery.poison)")


async def _take_down(worker: Worker, draining: asyncio.Task[Any]) -> None:
    """The process is gone in the middle of it: nothing is settled, the connection's transaction is rolled back."""
    draining.cancel()
    for relay in worker.relays.values():
        relay.stop()
        await relay.quiesce(0)
    await die(worker)


# ---------------------------------------------------------------- real processes


QUICK = {
    "lane": {"lease": 1.0},
    "handler": {"timeout": 15.0, "concurrency": 10},
    "pool": {"max": 15},
    "worker": {"shutdown_timeout": 1.0},
}
STOPPED = [f"stop-{n}" for n in range(10)]


@pytest.mark.parametrize("end", ["SIGCONT", "idle timeout"])
async def test_sigstop_inside_a_handler_transaction_holds_only_its_key_and_has_its_effect_once(
    any_postgres_url: str, end: str
) -> None:
    """As many handlers as a worker runs at a time are frozen with their transactions open."""
    await query(any_postgres_url, worker_process.EFFECTS)
    app = worker_process.make_app(any_postgres_url, QUICK)
    async with app:
        with WorkerProcess(any_postgres_url, **QUICK) as frozen:
            await frozen.says("ready")
            for key in STOPPED:
                await note(app, key, 1, 2)
            await frozen.says_all(f"inside {key}" for key in STOPPED)
            frozen.send(signal.SIGSTOP)

            async with app.worker() as worker:
                await until(lambda: len(lanes_of(worker, "handler:effect")) == LANES)
                others = [key_in(lane) for lane in range(LANES)]
                for key in others:
                    await note(app, key, 1)
                await until(lambda: _count(any_postgres_url, len(others)), patience=10)
                assert await _effects(any_postgres_url, STOPPED) == []

                if end == "SIGCONT":
                    frozen.send(signal.SIGCONT)
                    frozen.send(signal.SIGUSR1)
                await until(lambda: _count(any_postgres_url, len(others) + 2 * len(STOPPED)), patience=30)
                effects = await _effects(any_postgres_url, STOPPED)
                assert sorted(effects) == sorted((key, n) for key in STOPPED for n in (1, 2))
                assert all(effects.index((key, 1)) < effects.index((key, 2)) for key in STOPPED)
                await until(lambda: _is_empty(any_postgres_url))
        assert sum((await app.insight.counts()).values()) == 0


async def test_sigterm_ends_within_its_deadline_and_gives_lanes_back(any_postgres_url: str) -> None:
    hanging = {**QUICK, "handler": {"timeout": 120}}
    await query(any_postgres_url, worker_process.EFFECTS)
    app = worker_process.make_app(any_postgres_url, {})
    async with app:
        with WorkerProcess(any_postgres_url, **hanging) as process:
            await process.says("ready")
            await note(app, "stop", 1)
            await process.says("inside stop")
            process.send(signal.SIGTERM)
            await process.says("ended")
            assert await process.ends(within=30) == 0, "the deadline is one second; the rest is a slow machine"
        assert await app.insight.workers() == []
        assert set((await owners(any_postgres_url, "handler:effect")).values()) == {None}
        assert await query(any_postgres_url, "SELECT sum(crashes) FROM postlude_lane") == [(0,)]
        assert (await app.insight.counts())["pending"] == 1, "what did not end is left to the next owner, unharmed"


async def test_a_second_sigterm_ends_at_once(any_postgres_url: str) -> None:
    await query(any_postgres_url, worker_process.EFFECTS)
    app = worker_process.make_app(any_postgres_url, {})
    patient = {**QUICK, "worker": {"shutdown_timeout": 120}, "handler": {"timeout": 120}}
    async with app:
        with WorkerProcess(any_postgres_url, **patient) as process:
            await process.says("ready")
            await note(app, "stop", 1)
            await process.says("inside stop")
            process.send(signal.SIGTERM)
            await until(lambda: _second_signal(process))
            assert process.process.returncode == 130


def _second_signal(process: WorkerProcess) -> bool:
    """The first may not have been taken in yet; then the next one is the second."""
    if process.process.poll() is None:
        process.send(signal.SIGTERM)
    return process.process.poll() is not None


# ---------------------------------------------------------------- pieces


class Gate(MemoryBroker):
    """A broker that says when it is asked, and answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()

    async def publish(self, messages: Sequence[Any]) -> list[Outcome]:
        self.entered.set()
        await self.gate.wait()
        return await super().publish(messages)


async def bury(app: Postlude, worker: Worker) -> None:
    """Its lease ends now, by the database's clock, and somebody notices: we, or the worker itself."""
    first = worker.id
    app.clock.advance(PAST_THE_LEASE)
    await app.store.ownership.bury_workers()
    await until(lambda: worker.id != first and len(lanes_of(worker)) == LANES)


async def _is_buried(url: str, worker: UUID | None) -> bool:
    return not any(UUID(str(id_)) == worker for (id_,) in await query(url, "SELECT id FROM postlude_worker"))


async def _is_empty(url: str) -> bool:
    return not await query(url, "SELECT 1 FROM postlude_delivery")


async def _has_rows(url: str, sql: str) -> bool:
    return bool(await query(url, sql))


async def _count(url: str, wanted: int) -> bool:
    ((effects,),) = await query(url, "SELECT count(*) FROM effect")
    return int(effects) >= wanted


async def _effects(url: str, keys: list[str]) -> list[tuple[Any, ...]]:
    rows = await query(url, "SELECT key, n FROM effect ORDER BY position")
    return [row for row in rows if row[0] in keys]
