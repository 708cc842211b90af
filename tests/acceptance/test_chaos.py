"""Real processes, killed and stopped at random: nothing is lost, effects happen once, keys keep their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.acceptance.chaos_app import EFFECTS, Called, Moved, make_app
from tests.acceptance.chaos_books import assert_in_order, assert_nothing_lost, assert_once, effects, receipts, traces
from tests.acceptance.chaos_load import Load
from tests.acceptance.chaos_run import PATIENCE, Fleet, Storm, until

SEED = 20260115
LEASE = 2.0
OUTAGE = 0.5
WORKER = {
    "POSTLUDE_LANE__LEASE": str(LEASE),
    "POSTLUDE_POOL__MAX": "16",
    "POSTLUDE_HANDLER__CONCURRENCY": "12",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_three_workers_on_postgres(private_postgres, tmp_path, request) -> None:
    async def kill_postgres() -> None:
        private_postgres.kill()
        await asyncio.sleep(OUTAGE)
        private_postgres.start()

    async def restart_postgres() -> None:
        private_postgres.stop()
        await asyncio.sleep(OUTAGE)
        private_postgres.start()

    fleet = Fleet(3, tmp_path, POSTLUDE_DATABASE=private_postgres.dsn, **WORKER)
    storm = Storm(fleet, SEED, freeze=(LEASE * 1.2, LEASE * 2), pause=(0.2, 0.8))
    harms: list[str | Callable[[], Awaitable[None]]] = [*storm.plan(kills=6, freezes=6)]
    harms.insert(5, kill_postgres)
    harms.insert(9, restart_postgres)
    async with prepared(private_postgres.dsn, fleet) as app:
        load = Load(app, seed=SEED, parts=len(harms), linger=0.05)
        load.add(Moved, keys=500, each=40, writers=4)
        load.add(Called, keys=50, each=20, writers=1)
        await weather(app, fleet, load, storm, harms, timings=request.node.user_properties)
        assert len(load.appended(Moved)) == 20_000


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_workers_on_one_sqlite_file(tmp_path, request) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    fleet = Fleet(2, tmp_path, POSTLUDE_DATABASE=url, **WORKER)
    # A process that is stopped inside a write transaction keeps the only writer of the file, and everybody waits
    # until it goes on: that is SQLite. So nobody is stopped for much longer than the lease.
    storm = Storm(fleet, SEED, freeze=(LEASE * 1.2, LEASE * 1.5), pause=(0.2, 0.8))
    harms = storm.plan(kills=4, freezes=4)
    async with prepared(url, fleet) as app:
        load = Load(app, seed=SEED, parts=len(harms))
        load.add(Moved, keys=60, each=40, writers=2)
        load.add(Called, keys=20, each=10, writers=1)
        await weather(app, fleet, load, storm, harms, timings=request.node.user_properties)


@asynccontextmanager
async def prepared(url, fleet):
    """The app in this process, which only appends and looks."""
    app = make_app(url, fleet.traces)
    try:
        await app.db.upgrade()
        async with app.transaction() as tx:
            made = tx.execute(EFFECTS[app.store.dialect])
            if app.store.dialect == "postgres":
                await made
        yield app
    finally:
        await app.close()


async def weather(app, fleet, load, storm, harms, *, timings) -> None:
    """The whole storm, the calm after it, and the books."""
    began = time.monotonic()
    try:
        with fleet:
            await rage(app, fleet, load, storm, harms)
            timings.append(("storm_s", round(time.monotonic() - began, 1)))
            await settle(app, fleet)
            timings.append(("all_s", round(time.monotonic() - began, 1)))
            await check_books(app, fleet, load)
    except BaseException as error:
        error.add_note(f"harms: {storm.done}; load: {load}")
        raise
    finally:
        load.cancel()


async def rage(app, fleet, load, storm, harms) -> None:
    """Appends and harms in turn. A harm comes when most of the work is done, so that it meets workers at work and no
    backlog piles up that would take minutes to work off."""

    async def mostly_done() -> bool:
        return bool(sum((await app.insight.counts()).values()) <= load.part_size)

    for part, harm in enumerate(harms):
        load.release(part)
        await storm.strike(harm)
        await until(mostly_done, seconds=PATIENCE, meanwhile=fleet.tend)
    fleet.calm()
    await load.finish()


async def settle(app, fleet) -> None:
    """Until nothing is open. Dead letters would stay for ever: there must be none."""

    async def all_decided() -> bool:
        counts = await app.insight.counts()
        return bool(sum(counts.values()) == counts["dead"])

    try:
        await until(all_decided, seconds=300, meanwhile=fleet.tend)
    except TimeoutError as error:
        error.add_note(f"still open: {(await app.insight.list(limit=20)).items}")
        raise
    assert not (await app.insight.list(status="dead")).items


async def check_books(app, fleet, load) -> None:
    moved, called = load.appended(Moved), load.appended(Called)
    happened = await effects(app)
    assert_nothing_lost(happened, moved)
    assert_once(happened)
    assert_in_order(happened)
    published = traces(fleet.traces, "published")
    assert_nothing_lost(published, moved)
    assert_in_order(published)
    calls = traces(fleet.traces, "called")
    assert_nothing_lost(calls, called)
    assert_in_order(calls)
    assert await receipts(app) == {"default": len(moved), "handler:effect": len(moved), "handler:call": len(called)}
