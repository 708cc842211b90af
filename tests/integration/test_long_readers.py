"""Retention and partitions beside readers and writers that stay for long."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postlude import Postlude
from postlude.core.outcome import Failed, Fault
from postlude.core.uuid7 import uuid7
from postlude.storage.postgres.driver_asyncpg import compiled
from postlude.storage.postgres.records import BY_IDS
from tests.engine import Noted, held, note, published, query, routed_app

A_DAY = 24 * 3600.0
LONG_AGO = timedelta(days=30)


async def _with_old_partitions(url: str) -> Postlude:
    """An app with partitions of a month ago, and an event in one of them that was delivered then."""
    app = routed_app(url)
    await app.start()
    app.clock.ahead = -40 * A_DAY
    made = await app.store.upkeep.make_partitions(14)
    app.clock.ahead = 0.0
    assert any(f"{datetime.now(UTC) - LONG_AGO:%Y%m%d}" in name for name in made)
    return app


async def _append_long_ago(app: Postlude, n: int) -> Any:
    then = datetime.now(UTC) - LONG_AGO
    async with app.transaction() as tx:
        return await app.outbox.append(tx, Noted(key="old", n=n), id=uuid7(int(then.timestamp() * 1000), n))


async def test_a_requeue_that_is_not_committed_keeps_its_event_from_retiring(postgres_url: str) -> None:
    """Retention decides under the partition's lock, and a requeue or replay locks the event first."""
    app = await _with_old_partitions(postgres_url)
    async with app:
        kept, gone = await _append_long_ago(app, 1), await _append_long_ago(app, 2)
        assert await app.drain() == 2
        async with held(postgres_url) as operator:
            sql, names = compiled(app.store.database.statements["replay"])  # type: ignore[attr-defined]
            values = {"event_ids": [kept], "destinations": ["default"], "lanes": [0], "keys": ["old"]}
            given = values | {"actor": "ann", "reason": "once more", **BY_IDS}
            await operator.connection.fetch(sql, *(given[name] for name in names))
            assert not [name for name in await app.store.upkeep.retire_partitions(24) if "event" in name]
            await operator.commit()
        assert [name for name in await app.store.upkeep.retire_partitions(24) if "event" in name]
        assert await query(postgres_url, "SELECT event_id FROM postlude_event") == [(kept,)]
        assert await app.drain() == 1
        assert published(app) == [1, 2, 1]
        assert await app.actions.requeue([gone], actor="ann", reason="too late") == []
        assert await app.actions.replay([gone], to="default", actor="ann", reason="too late") == []
        assert (await app.insight.counts())["dead"] == 0


async def test_a_dead_letter_survives_the_retiring_of_its_day(postgres_url: str) -> None:
    app = await _with_old_partitions(postgres_url)
    app.broker().fate = lambda message: Failed(Fault("Bad")) if b'"n":1' in message.payload else None
    async with app:
        for n in range(1, 4):
            await _append_long_ago(app, n)
        for _ in range(10):
            await app.drain()
        assert (await app.insight.counts())["dead"] == 1
        assert await app.store.upkeep.retire_partitions(24)
        (letter,) = await app.insight.list(status="dead")
        app.broker().fate = None
        assert await app.actions.requeue([letter.event_id], actor="ann", reason="fixed")
        await app.drain()
        assert published(app) == [2, 3, 1]


@pytest.mark.parametrize("work", ["retire", "attach"])
async def test_a_long_reader_delays_retire_and_attach_but_no_append(postgres_url: str, work: str) -> None:
    app = await _with_old_partitions(postgres_url)
    upkeep = app.store.upkeep

    async def maintain() -> list[str]:
        return await (upkeep.retire_partitions(24) if work == "retire" else upkeep.make_partitions(21))

    async with app:
        await _append_long_ago(app, 0)
        await app.drain()
        async with held(postgres_url, "BEGIN ISOLATION LEVEL REPEATABLE READ") as reader:
            await reader.connection.fetch("SELECT count(*) FROM postlude_event")
            await reader.connection.fetch("SELECT count(*) FROM postlude_receipt")
            maintaining = asyncio.create_task(maintain())
            longest = 0.0
            n = 0
            while not maintaining.done():
                n += 1
                began = time.monotonic()
                await asyncio.wait_for(note(app, "new", n), 20)
                longest = max(longest, time.monotonic() - began)
            assert await maintaining == []
            assert n >= 1
            assert longest < 10, "an append waited for the reader; whatever is shorter is a slow machine"
        done = await maintain()
        assert done
        assert await app.drain() == n


async def test_a_partition_made_ahead_takes_along_what_came_early(any_postgres_url: str) -> None:
    """Ids that are no v7 may fall into any day; they are never missing, not for a moment."""
    app = routed_app(any_postgres_url)
    async with app:
        day = datetime.now(UTC) + timedelta(days=18)
        early = uuid7(int(day.timestamp() * 1000), 7)
        fits = str(early)[:14] + "4" + str(early)[15:]  # the same time, but version 4
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="early", n=1), id=fits)
        assert await query(any_postgres_url, "SELECT tableoid::regclass::text FROM postlude_event") == [
            ("postlude_event_default",)
        ]
        made = await app.store.upkeep.make_partitions(21)
        assert f"postlude_event_{day:%Y%m%d}" in made
        assert await query(any_postgres_url, "SELECT tableoid::regclass::text FROM postlude_event") == [
            (f"postlude_event_{day:%Y%m%d}",)
        ]
        assert await app.drain() == 1
