"""SIGTERM to a real process: it ends within its deadline whatever happens, and a second one does not wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager, contextmanager

import pytest

from tests.acceptance.chaos_app import Called, Lingered, make_app
from tests.acceptance.chaos_books import traces
from tests.acceptance.chaos_run import Fleet, until
from tools.processes import children_of

SLOW_MACHINE = 30.0
"""Seconds for what takes none on a machine that has nothing else to do."""
GIVING_BACK = 6.0
"""Beyond the worker's deadline, closing the pool has one of its own."""
LEASE = 2.0


@asynccontextmanager
async def at_work(url, tmp_path, *events, deadline: float):
    """One worker that has begun to handle these."""
    options = {"POSTLUDE_WORKER__SHUTDOWN_TIMEOUT": str(deadline), "POSTLUDE_LANE__LEASE": str(LEASE)}
    fleet = Fleet(1, tmp_path, POSTLUDE_DATABASE=url, **options)
    app = make_app(url, fleet.traces)
    with fleet:
        try:
            await app.db.upgrade()
            async with app.transaction() as tx:
                await app.outbox.append_many(tx, events)

            async def begun() -> bool:
                return len(traces(fleet.traces, "called")) == len(events)

            await until(begun, seconds=60, meanwhile=fleet.tend)
            yield app, fleet.places[0]
        finally:
            await app.close()


async def end(place, *, within: float) -> int:
    """Its exit code, without holding up this process."""
    place.signal(signal.SIGTERM)
    return await asyncio.to_thread(place.wait, within)


async def assert_given_back(app) -> None:
    assert await app.insight.workers() == []
    assert sum(one.lanes_owned for one in await app.insight.destinations()) == 0


@pytest.mark.slow
async def test_sigterm_waits_until_its_deadline_and_gives_lanes_back(database_url, tmp_path) -> None:
    slow = [Lingered(key=f"k{i}", seconds=100) for i in range(3)]
    async with at_work(database_url, tmp_path, *slow, deadline=2) as (app, place):
        began = time.monotonic()
        assert await end(place, within=2 + SLOW_MACHINE) == 0
        assert time.monotonic() - began >= 1, "the rest is kept for giving lanes back"
        await assert_given_back(app)
        counts = await app.insight.counts()
        assert counts["claimed"] == sum(counts.values()) == len(slow), "left to the next owner"


@pytest.mark.slow
async def test_sigterm_lets_finish_what_ends_in_time(database_url, tmp_path) -> None:
    short = [Lingered(key=f"k{i}", seconds=1) for i in range(3)]
    async with at_work(database_url, tmp_path, *short, deadline=60) as (app, place):
        assert await end(place, within=1 + SLOW_MACHINE) == 0
        await assert_given_back(app)
        assert not any((await app.insight.counts()).values())


@pytest.mark.slow
async def test_a_second_sigterm_ends_at_once(database_url, tmp_path) -> None:
    async with at_work(database_url, tmp_path, Lingered(key="k", seconds=100), deadline=60) as (app, place):
        place.signal(signal.SIGTERM)

        async def heard() -> bool:
            return "stopping" in place.output()

        await until(heard, seconds=SLOW_MACHINE)
        assert await end(place, within=SLOW_MACHINE) == 130
        assert (await app.insight.counts())["claimed"] == 1


@pytest.mark.slow
async def test_sigterm_while_postgres_is_gone(private_postgres, tmp_path) -> None:
    events = [Called(key="k", n=0), Lingered(key="k", seconds=100)]
    async with at_work(private_postgres.dsn, tmp_path, *events, deadline=1) as (_, place):
        private_postgres.kill()
        assert await end(place, within=1 + GIVING_BACK + SLOW_MACHINE) == 0


@contextmanager
def hanging(server):
    """The server takes connections and answers nothing, as behind a broken network."""
    processes = [server.pid, *children_of(server.pid)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
async def test_sigterm_while_postgres_hangs(private_postgres, tmp_path) -> None:
    events = [Called(key="k", n=0), Lingered(key="k", seconds=100)]
    async with at_work(private_postgres.dsn, tmp_path, *events, deadline=1) as (_, place):
        with hanging(private_postgres):
            assert await end(place, within=1 + GIVING_BACK + SLOW_MACHINE) == 0
