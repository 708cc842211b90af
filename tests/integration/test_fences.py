"""Nobody writes to a lane that he lost (promise 5)."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from postlude import Postlude
from postlude.core.delivery import Delivery, Fence, Verdict
from postlude.core.floors import Track
from postlude.core.lifecycle import Status
from tests.engine import LANES, held, key_in, note, query, routed_app, until
from tests.owning import LEASE, PAST_THE_LEASE


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


async def _has_rows(url: str, sql: str) -> bool:
    return bool(await query(url, sql))
