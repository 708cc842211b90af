"""Lanes have one owner: shared fairly, and given back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest

from postlude.errors import DatabaseUnavailable
from postlude.runtime.worker import Worker
from tests.engine import LANES, Noted, make_app, note, query, routed_app, settle_shares, workers
from tests.owning import lanes_of, owners


async def shares(url: str) -> list[int]:
    """How many lanes each owner has, most first; lanes without an owner do not count."""
    owned = Counter(owner for owner in (await owners(url)).values() if owner is not None)
    return sorted(owned.values(), reverse=True)


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
