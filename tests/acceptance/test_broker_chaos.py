"""End to end with real processes: a shop, its relays, a broker, and an office whose two consumers both get everything.

10,000 events while the broker is away for 20 s and relays and consumers are killed with -9: nothing is lost, effects
happen once, keys keep their order, and nobody pays for the outage with an attempt.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from postlude import Postlude
from tests.acceptance.broker_app import CONSUMERS, EFFECTS, TOPIC, environment, make_office, make_shop
from tests.acceptance.broker_run import Company, Weather
from tests.acceptance.chaos_app import Moved
from tests.acceptance.chaos_load import Load
from tests.acceptance.chaos_run import PATIENCE, until

SEED = int(os.environ.get("POSTLUDE_TEST_SEED", "20260115"))
KEYS, EACH = 200, 50
KILLS = 12
OUTAGE = 20.0
LANES = 64
PROCESS = {"POSTLUDE_LANE__LEASE": "2", "POSTLUDE_RELAY__BATCH_SIZE": "200", "POSTLUDE_CONSUMER__BATCH_SIZE": "200"}
SOON = 2.0
"""Seconds until a group gives to others what a member had that was killed."""

BROKERS: dict[str, dict[str, Any]] = {
    "kafka": {"session_timeout_ms": int(SOON * 1000), "heartbeat_interval_ms": 200},
    # A quorum queue that is new has no leader after a kill of its only node.
    "rabbitmq": {"queue_type": "classic"},
    "redis": {"claim_after": SOON},
    "nats": {"ack_wait": SOON},
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("private_broker", "options"), BROKERS.items(), indirect=["private_broker"], ids=BROKERS)
async def test_two_services(private_broker, options, any_postgres_database, tmp_path, request) -> None:
    databases = {"shop": any_postgres_database.fresh(), "office": any_postgres_database.fresh()}
    told = environment(**databases, broker=private_broker.url, options=options)
    company = Company(tmp_path, **told, **PROCESS)
    weather = Weather(company, private_broker, SEED, kills=KILLS)
    request.node.user_properties.append(("seed", SEED))
    async with prepared(told, private_broker) as (shop, office):
        load = Load(shop, seed=SEED, parts=weather.parts)
        load.add(Moved, keys=KEYS, each=EACH, writers=4)
        books = Books(shop, office, load, company)
        try:
            with company:
                await rage(books, weather, timings=request.node.user_properties)
                await books.check()
                assert await company.go_home() == [0] * len(company.processes)
        except BaseException as error:
            error.add_note(f"POSTLUDE_TEST_SEED={SEED}; harms: {weather.done}; load: {load}")
            raise
        finally:
            load.cancel()


@asynccontextmanager
async def prepared(told, server):
    """The apps in this process, which only append and look. Both groups are there before anything is published."""
    shop, office = make_shop(told), make_office(told)
    try:
        async with office.transaction() as tx:
            await tx.execute(EFFECTS)
        for consumer in CONSUMERS:
            async with office.broker().subscribe([TOPIC], consumer):
                pass
        if control := getattr(server, "control", None):
            # RabbitMQ answers before its definitions are on disk: a kill right after would lose the queues.
            control("eval", "mnesia:sync_log().")
        yield shop, office
    finally:
        await shop.close()
        await office.close()


async def rage(books, weather, *, timings) -> None:
    """A part of the load before each harm; then the calm, until every effect is there."""
    began = time.monotonic()
    parts = iter(range(weather.parts))
    for harm in weather.before:
        books.load.release(next(parts))
        await weather.strike(harm)
    watching = asyncio.create_task(books.watch_attempts())
    await weather.outage(OUTAGE, lambda: books.load.release(next(parts)))
    for harm in weather.after:
        books.load.release(next(parts))
        await weather.strike(harm)
    books.company.calm()
    await books.load.finish()
    timings.append(("storm_s", round(time.monotonic() - began, 1)))
    await books.settle()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    timings.append(("all_s", round(time.monotonic() - began, 1)))


class Books:
    """Both databases, against what was appended."""

    def __init__(self, shop: Postlude, office: Postlude, load: Load, company: Company) -> None:
        self.shop, self.office = shop, office
        self.load, self.company = load, company
        self.failures: set[str] = set()

    async def watch_attempts(self) -> None:
        """Whatever is counted against an entry leaves its error there, until it is sent."""
        sql = "SELECT DISTINCT last_error FROM postlude_delivery WHERE last_error IS NOT NULL"
        while True:
            for app in (self.shop, self.office):
                self.failures |= {row[0] for row in await fetch(app, sql)}
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        """As long as something happens there is hope."""
        wanted = len(CONSUMERS) * KEYS * EACH
        done = -1
        while done < wanted:
            before = done

            async def is_more() -> bool:
                nonlocal done
                done = await value(self.office, "SELECT count(*) FROM effect")
                return bool(done > before)  # noqa: B023 - awaited in this round

            try:
                await until(is_more, seconds=PATIENCE, meanwhile=self.company.tend)
            except TimeoutError as error:
                error.add_note(f"{done} of {wanted} effects; open: {await self._open()}")
                raise
        await until(self._is_all_told, seconds=PATIENCE, meanwhile=self.company.tend)

    async def _open(self) -> list[Any]:
        return [await app.insight.counts() for app in (self.shop, self.office)]

    async def _is_all_told(self) -> bool:
        """Nothing is open, and every consumer knows that the broker has nothing more for it."""
        lags = await fetch(self.office, "SELECT lag FROM postlude_consumer ORDER BY consumer")
        return not any(sum(counts.values()) for counts in await self._open()) and [row[0] for row in lags] == [0, 0]

    async def check(self) -> None:
        appended = self.load.appended(Moved)
        assert len(appended) == KEYS * EACH
        await self.check_effects(set(appended))
        await self.check_inbox(len(appended))
        await self.check_attempts(len(appended))

    async def check_effects(self, appended: set[Any]) -> None:
        seen = await fetch(self.office, "SELECT consumer, event_id FROM effect")
        assert {row[0] for row in seen} == set(CONSUMERS)
        for consumer in CONSUMERS:
            mine = [row[1] for row in seen if row[0] == consumer]
            assert set(mine) == appended, f"{len(appended - set(mine))} are lost for {consumer}"
            assert len(mine) == len(appended), f"{len(mine) - len(appended)} happened twice for {consumer}"
        swapped = await fetch(
            self.office,
            "SELECT * FROM (SELECT consumer, key, n, position, lag(n) OVER (PARTITION BY consumer, key ORDER BY position)"
            " AS before FROM effect) AS effects WHERE before >= n ORDER BY position",
        )
        assert not swapped, f"{len(swapped)} are out of order, such as {[tuple(row) for row in swapped[:10]]}"

    async def check_inbox(self, count: int) -> None:
        rows = await fetch(self.office, "SELECT consumer, count(*) FROM postlude_inbox GROUP BY consumer")
        assert {row[0]: row[1] for row in rows} == dict.fromkeys(CONSUMERS, count)
        assert await value(self.office, "SELECT count(*) FROM postlude_event") == count
        told = await fetch(
            self.office, "SELECT received - duplicates, ignored, unreadable FROM postlude_consumer ORDER BY consumer"
        )
        assert [tuple(row) for row in told] == [(count, 0, 0)] * len(CONSUMERS)

    async def check_attempts(self, count: int) -> None:
        """A failure would have been seen. After a crash a lane commits an attempt before it is made, one at a time: what
        a kill meets then is the only thing that may be counted."""
        assert not self.failures
        for app, kind, destinations in (
            (self.shop, "relay", ["default"]),
            (self.office, "consumer", [f"handler:{consumer}" for consumer in CONSUMERS]),
        ):
            rows = await fetch(
                app,
                "SELECT destination, outcome, count(*), sum(attempts - 1), max(attempts) FROM postlude_receipt"
                " GROUP BY destination, outcome ORDER BY destination",
            )
            assert [tuple(row)[:3] for row in rows] == [(destination, "sent", count) for destination in destinations]
            deaths = sum(process.deaths for process in self.company.processes if process.kind == kind)
            for row in rows:
                assert row[3] <= deaths * LANES, f"{row[3]} attempts of {row[0]} led to nothing, with {deaths} kills"


async def fetch(app: Postlude, sql: str) -> list[asyncpg.Record]:
    async with app.transaction() as tx:
        return list(await tx.fetch(sql))


async def value(app: Postlude, sql: str) -> Any:
    return (await fetch(app, sql))[0][0]
