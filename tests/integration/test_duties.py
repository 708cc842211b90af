"""Duties: one owner each, done by hand when nobody has them, counted, and told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postlude import NotFound, Postlude
from postlude.core.statement import Statement
from postlude.core.uuid7 import uuid7
from postlude.errors import DutyTaken
from postlude.runtime.duties import retention
from postlude.runtime.watchers import Watchers
from tests.engine import Noted, note, query, routed_app, until

HOUR = 3600.0
A_DAY = 24 * HOUR


async def settled(app: Postlude, *numbers: int) -> None:
    await note(app, "a", *numbers)
    await app.drain()


async def test_a_duty_is_done_by_hand_in_bounded_batches(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    async with routed_app(sqlite_url, retention={"events_hours": 24}) as app:
        await settled(app, *range(7))
        app.clock.advance(25 * HOUR)
        told: list[int] = []
        done = await app.maintenance.run("retention", told.append)
        assert (done.rows, done.error) == (14, None)
        assert told == [6, 12, 14], "of seven events and receipts, three of each at a time"
        assert (await app.maintenance.run("duty:retention")).rows == 0
        found = {one.name: one for one in await app.maintenance.duties()}
        assert (found["retention"].owner, found["retention"].rows, found["retention"].error) == (None, 0, None)
        assert found["retention"].ran_at is not None
        assert found["partitions"].ran_at is None
        assert await app.insight.workers() == [], "whoever did it is gone again"
        with pytest.raises(NotFound, match="retention"):
            await app.maintenance.run("nonsense")


async def test_a_duty_that_a_worker_has_is_refused_with_its_name(database_url: str) -> None:
    async with routed_app(database_url) as app, routed_app(database_url) as other:
        async with app.worker() as worker:
            await worker.tick()
            (owner,) = await app.insight.workers()
            with pytest.raises(DutyTaken, match=owner.name):
                await other.maintenance.run("retention")
            assert {one.owner for one in await other.maintenance.duties()} == {owner.name}
            assert [one.id for one in await app.insight.workers()] == [owner.id]
        assert (await other.maintenance.run("retention")).error is None


async def test_a_worker_does_not_take_a_duty_that_is_done_by_hand(database_url: str) -> None:
    async with routed_app(database_url) as app, routed_app(database_url) as other:
        inside, go_on = asyncio.Event(), asyncio.Event()

        async def slow(*_: Any, **__: Any) -> int:
            inside.set()
            await go_on.wait()
            return 0

        upkeep: Any = app.store.upkeep
        upkeep.prune = slow
        by_hand = asyncio.create_task(app.maintenance.run("retention"))
        await inside.wait()
        async with other.worker() as worker:
            await worker.tick()
            owners = {one.name: one.owner for one in await other.maintenance.duties()}
            assert "by hand" in (owners["retention"] or "")
            go_on.set()
            await by_hand
            await worker.tick()
            (one,) = await other.insight.workers()
            owners = {duty.name: duty.owner for duty in await other.maintenance.duties()}
            assert owners["retention"] == one.name


async def test_what_a_duty_did_is_counted_and_told(database_url: str) -> None:
    app = routed_app(database_url, retention={"events_hours": 24, "interval": 0.05})
    async with app:
        await settled(app, 1, 2)
        retention_duty = next(duty for duty in app.engine.duties() if duty.title == "retention")
        watchers = Watchers([])
        async with app.worker() as worker:
            await until(lambda: worker.watchers.counts["duty:partitions:turns"] >= 1)
            assert worker.watchers.counts["duty:partitions:failures"] == 0
            assert worker.watchers.seconds["duty:partitions:seconds"] > 0
        upkeep: Any = app.store.upkeep
        upkeep.prune = broken
        await retention_duty._take_turn(watchers)
        assert watchers.counts == {"duty:retention:turns": 1, "duty:retention:rows": 0, "duty:retention:failures": 1}
        (told,) = [one for one in await app.maintenance.duties() if one.name == "retention"]
        assert told.error == "ZeroDivisionError"
        assert told.next_at is not None
        assert told.ran_at is not None
        assert told.next_at > told.ran_at


async def broken(**_: Any) -> int:
    raise ZeroDivisionError("o-1")


@pytest.mark.parametrize(("events", "receipts", "gone"), [(72, 0, "event"), (0, 72, "receipt"), (9999, 72, "receipt")])
async def test_days_of_events_and_receipts_retire_apart(
    postgres_url: str, events: int, receipts: int, gone: str
) -> None:
    app = routed_app(postgres_url)
    async with app:
        app.clock.ahead = -40 * A_DAY
        await app.store.upkeep.make_partitions(14)
        app.clock.ahead = 0.0
        old = datetime.now(UTC) - timedelta(days=30)
        async with app.transaction() as tx:
            old_id = uuid7(int(old.timestamp() * 1000), 1)
            await app.outbox.append(tx, Noted(key="old", n=1), id=old_id)
        await app.drain()
        retired = await app.store.upkeep.retire_partitions(events, receipts)
        assert {name.split("_")[1] for name in retired} == {gone}
        left = {
            table: (await query(postgres_url, f"SELECT count(*) FROM postlude_{table}"))[0][0]
            for table in ("event", "receipt")
        }
        assert left == {"event": 1, "receipt": 1} | {gone: 0}


async def test_where_sqlite_cannot_tell_sizes_rows_are_told(sqlite_url: str) -> None:
    async with routed_app(sqlite_url) as app:
        await settled(app, 1, 2)
        app.store.database.statements["disk_use"] = Statement("disk_use", "SELECT 1 FROM no_such_table")  # type: ignore[attr-defined]
        used = {one.name: one for one in await app.store.upkeep.disk_use()}
        assert (used["postlude_event"].bytes, used["postlude_event"].rows) == (None, 2)


async def test_without_its_receipts_an_event_still_tells_what_it_says(sqlite_url: str) -> None:
    app = routed_app(sqlite_url, retention={"events_hours": 48, "receipts_hours": 24})
    async with app:
        await settled(app, 1)
        (sent,) = await app.insight.list(status="sent")
        app.clock.advance(25 * HOUR)
        assert (await app.maintenance.run("retention")).rows == 1
        story = await app.insight.event(sent.event_id)
        assert (story.receipts, story.deliveries, story.event.type) == ([], [], "test.noted")
        assert list(await app.insight.list(status="sent")) == []
