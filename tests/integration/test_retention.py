"""Partitions made ahead, retired and dropped, and what retention keeps."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude import InvalidId, NotFound, Postlude
from postlude.core.outcome import Fault, Rejected
from postlude.core.uuid7 import time_of, uuid7
from postlude.runtime.duties.partitions import MakePartitions
from postlude.runtime.duties.retention import Retention
from postlude.storage.postgres import partitions
from postlude.storage.postgres.driver_asyncpg import compiled
from postlude.storage.postgres.records import BY_IDS
from tests.engine import Noted, arrived, held, note, published, query, routed_app, until

HOUR = 3600.0
A_DAY = 24 * HOUR
OLD = timedelta(days=30)
WHO: dict[str, Any] = {"actor": "ann", "reason": "tests"}


def id_of(moment: datetime, n: int = 0) -> UUID:
    return uuid7(int(moment.timestamp() * 1000), n)


async def with_old_days(url: str) -> Postlude:
    """An app that has been there for long: days of a month ago have their partitions."""
    app = routed_app(url)
    await app.start()
    app.clock.ahead = -40 * A_DAY
    await app.store.upkeep.make_partitions(14)
    app.clock.ahead = 0.0
    return app


def old_day() -> str:
    return f"{datetime.now(UTC) - OLD:%Y%m%d}"


async def append_old(app: Postlude, n: int, key: str = "old") -> UUID:
    async with app.transaction() as tx:
        return await app.outbox.append(tx, Noted(key=key, n=n), id=id_of(datetime.now(UTC) - OLD, n))


async def homes(url: str) -> dict[UUID, str]:
    """The table each event stands in."""
    found = await query(url, "SELECT event_id, tableoid::regclass::text FROM postlude_event")
    return {row[0]: row[1] for row in found}


async def days(url: str, parent: str = "postlude_event") -> list[str]:
    sql = f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{parent}'::regclass ORDER BY 1"
    return [row[0] for row in await query(url, sql) if not row[0].endswith("default")]


async def kill(app: Postlude, *numbers: int) -> None:
    """Deliver what is due; these numbers become dead letters."""
    refused = tuple(f'"n":{n}}}'.encode() for n in numbers)
    app.broker().fate = lambda message: Rejected(Fault("Bad")) if message.payload.endswith(refused) else None
    await app.drain()
    app.broker().fate = None


# ---------------------------------------------------------------- partitions


async def test_days_are_made_ahead_and_appends_land_in_them(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with app:
        await note(app, "a", 1)
        await app.drain()
        ((one, home),) = (await homes(postgres_url)).items()
        assert home == f"postlude_event_{time_of(one):%Y%m%d}"
        receipts = await query(postgres_url, "SELECT tableoid::regclass::text FROM postlude_receipt")
        assert receipts[0][0].removeprefix("postlude_receipt") == home.removeprefix("postlude_event")

        made = await app.store.upkeep.make_partitions(21)
        last = f"{datetime.now(UTC) + timedelta(days=21):%Y%m%d}"
        assert {f"postlude_event_{last}", f"postlude_receipt_{last}"} <= set(made)
        assert set(made) <= {*await days(postgres_url), *await days(postgres_url, "postlude_receipt")}
        assert await app.store.upkeep.make_partitions(21) == []
        kept_out = "SELECT count(*) FROM pg_constraint WHERE conname LIKE 'not\\_postlude%'"
        assert await query(postgres_url, kept_out) == [(0,)], "nothing that was needed on the way is left"


async def test_the_duty_makes_the_days_to_come(any_postgres_url: str) -> None:
    app = routed_app(any_postgres_url)
    async with app:
        duty = MakePartitions(app.store.upkeep, days=14, interval=HOUR)
        await duty.round()
        before = await days(any_postgres_url)
        app.clock.advance(5 * A_DAY)
        assert not (await duty.round()).more
        assert len(await days(any_postgres_url)) == len(before) + 5


async def test_two_workers_that_both_hold_the_duty_make_each_day_once(any_postgres_url: str) -> None:
    """A worker that was frozen beyond its lease goes on beside its successor."""
    async with routed_app(any_postgres_url) as one, routed_app(any_postgres_url) as other:
        await note(one, "a", 1)  # the log is in use, so that a day takes several transactions
        makers = [app.store.upkeep.make_partitions for app in (one, other)] * 2
        made = await asyncio.gather(*(make(16) for make in makers))
        made.append(
            await one.store.upkeep.make_partitions(16)
        )  # a lock that was not granted at once is asked for again
        names = [name for names in made for name in names]
        assert len(names) == len(set(names))
        assert {f"postlude_event_{datetime.now(UTC) + timedelta(days=n):%Y%m%d}" for n in range(10, 17)} <= set(
            await days(any_postgres_url)
        )
        left = "SELECT conname FROM pg_constraint WHERE conname LIKE 'not_postlude_%'"
        assert await query(any_postgres_url, left) == []


async def test_a_duty_that_fails_does_not_stop_the_worker(database_url: str, caplog: Any) -> None:
    app = routed_app(database_url)
    async with app:
        upkeep: Any = app.store.upkeep
        upkeep.make_partitions = broken
        async with app.worker():
            await until(lambda: "duty:partitions failed" in caplog.text)
            await note(app, "a", 1)
            await arrived(app, 1)


async def broken(days: int) -> list[str]:
    raise ZeroDivisionError(days)


async def test_a_day_is_emptied_and_then_dropped(postgres_url: str) -> None:
    app = await with_old_days(postgres_url)
    async with app:
        old = await append_old(app, 1)
        await note(app, "new", 2)
        await app.drain()
        before = await days(postgres_url)
        assert f"postlude_event_{old_day()}" in before
        retired = await app.store.upkeep.retire_partitions(72)
        assert f"postlude_event_{old_day()}" in retired
        assert f"postlude_receipt_{old_day()}" in retired
        assert f"postlude_event_{old_day()}" in await days(postgres_url), "emptied, not dropped: no append waits"
        with pytest.raises(NotFound):
            await app.insight.event(old)
        assert len(await app.insight.list(status="sent")) == 1
        again = await app.store.upkeep.retire_partitions(72)
        assert f"postlude_event_{old_day()}" in again
        assert f"postlude_event_{old_day()}" not in await days(postgres_url)
        assert await query(postgres_url, f"SELECT to_regclass('postlude_event_{old_day()}')") == [(None,)]
        assert await app.store.upkeep.retire_partitions(72) == []
        await note(app, "new", 3)
        await app.drain()
        assert published(app) == [1, 2, 3]


async def test_a_day_is_kept_as_long_as_it_should_be(postgres_url: str) -> None:
    app = await with_old_days(postgres_url)
    async with app:
        old = await append_old(app, 1)
        await app.drain()
        assert not [name for name in await app.store.upkeep.retire_partitions(32 * 24) if name.endswith(old_day())]
        assert (await app.insight.event(old)).receipts
        app.clock.advance(4 * A_DAY)
        assert [name for name in await app.store.upkeep.retire_partitions(32 * 24) if name.endswith(old_day())]
        with pytest.raises(NotFound):
            await app.insight.event(old)


async def test_what_is_still_open_stays_with_its_event_and_its_receipts(postgres_url: str) -> None:
    app = await with_old_days(postgres_url)
    app.route(Noted, to="other")
    app.broker("other").fate = lambda message: Rejected(Fault("Bad")) if b'"n":1}' in message.payload else None
    async with app:
        dead, done = await append_old(app, 1), await append_old(app, 2)
        await app.drain()
        waiting = await append_old(app, 3)
        for _ in range(3):
            await app.store.upkeep.retire_partitions(72)
        assert set(await homes(postgres_url)) == {dead, waiting}
        with pytest.raises(NotFound):
            await app.insight.event(done)
        story = await app.insight.event(dead)
        assert [(one.destination, one.status) for one in story.deliveries] == [("other", "dead")]
        assert [(one.destination, one.outcome) for one in story.receipts] == [("default", "sent")]
        app.broker("other").fate = None
        await app.actions.requeue([dead], **WHO)
        await app.drain()
        assert published(app, broker="other") == [2, 1, 3]
        assert await app.store.upkeep.retire_partitions(72)
        assert await homes(postgres_url) == {}


async def test_a_day_with_too_many_survivors_is_left_alone(any_postgres_url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(partitions, "MAX_SURVIVORS", 2)
    app = await with_old_days(any_postgres_url)
    async with app:
        for n in range(4):
            await append_old(app, n)
        await kill(app, 0, 1, 2)
        assert not [
            name for name in await app.store.upkeep.retire_partitions(72) if name.endswith(f"event_{old_day()}")
        ]
        assert len(await homes(any_postgres_url)) == 4


async def test_a_row_that_is_committed_while_an_empty_day_is_dropped_is_kept(
    any_postgres_url: str, monkeypatch: Any
) -> None:
    """An append with an old id, between the look at the empty day and the lock on it."""
    monkeypatch.setattr(partitions, "LOCK_TIMEOUT", "30s")
    app = await with_old_days(any_postgres_url)
    day = f"postlude_event_{old_day()}"
    async with app, held(any_postgres_url) as late:
        await query(
            any_postgres_url, "DROP TABLE " + ", ".join(name for name in await days(any_postgres_url) if name < day)
        )
        one = id_of(datetime.now(UTC) - OLD, 1)
        await app.outbox.append(late.connection, Noted(key="old", n=1), id=one)
        retiring = asyncio.create_task(app.store.upkeep.retire_partitions(72))

        async def waits() -> bool:
            sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            return bool(await query(any_postgres_url, sql))

        await until(waits)
        await late.commit()
        assert day not in await retiring
        assert (await homes(any_postgres_url))[one] == day
        assert await app.drain() == 1
        assert published(app) == [1]


# ---------------------------------------------------------------- nobody waits


async def test_no_append_waits_while_a_reader_holds_recent_events(postgres_url: str) -> None:
    app = await with_old_days(postgres_url)
    upkeep = app.store.upkeep
    async with app:
        old = await append_old(app, 0)
        await note(app, "new", 0)
        await app.drain()
        async with held(postgres_url, "BEGIN ISOLATION LEVEL REPEATABLE READ") as reader:
            since = id_of(datetime.now(UTC) - timedelta(hours=1))
            sql = "SELECT count(*) FROM postlude_event WHERE event_id > $1"
            assert await reader.connection.fetchval(sql, since) == 1

            async def maintain() -> list[str]:
                made = await upkeep.make_partitions(17)
                return [*made, *await upkeep.retire_partitions(72), *await upkeep.retire_partitions(72)]

            maintaining = asyncio.create_task(maintain())
            longest, n = 0.0, 0
            while not maintaining.done():
                n += 1
                began = time.monotonic()
                await asyncio.wait_for(note(app, "new", n), 20)
                longest = max(longest, time.monotonic() - began)
            assert f"postlude_event_{old_day()}" in await maintaining, "an old day does not concern that reader"
            assert n >= 3
            assert longest < 10, "an append waited for the reader; whatever is shorter is a slow machine"
            assert old not in await homes(postgres_url)
        assert await app.drain() == n
        assert set(await upkeep.make_partitions(17)) <= {
            *await days(postgres_url),
            *await days(postgres_url, "postlude_receipt"),
        }
        assert f"postlude_event_{datetime.now(UTC) + timedelta(days=17):%Y%m%d}" in await days(postgres_url)


async def test_a_requeue_that_is_not_committed_and_retention_leave_no_orphan(postgres_url: str) -> None:
    app = await with_old_days(postgres_url)
    day = f"postlude_event_{old_day()}"
    async with app:
        dead, done = await append_old(app, 1, "one"), await append_old(app, 2, "two")
        await kill(app, 1)
        async with held(postgres_url) as operator:
            sql, names = compiled(app.store.database.statements["requeue"])  # type: ignore[attr-defined]
            given = {"event_ids": [dead], "destination": None, **BY_IDS, **WHO}
            assert len(await operator.connection.fetch(sql, *(given[name] for name in names))) == 1
            assert day not in await app.store.upkeep.retire_partitions(72)
            assert set(await homes(postgres_url)) == {dead, done}
            await operator.commit()
        assert day in await app.store.upkeep.retire_partitions(72)
        assert set(await homes(postgres_url)) == {dead}
        assert await app.drain() == 1
        assert published(app) == [2, 1]
        orphans = (
            "SELECT 1 FROM postlude_delivery d LEFT JOIN postlude_event e USING (event_id) WHERE e.event_id IS NULL"
        )
        assert await query(postgres_url, orphans) == []


# ---------------------------------------------------------------- what is in no partition


async def test_ids_that_are_no_v7_live_in_the_default_partition_and_are_pruned_in_batches(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with app:
        ids = [uuid4() for _ in range(7)]
        async with app.transaction() as tx:
            for n, one in enumerate(ids):
                await app.outbox.append(tx, Noted(key=f"key-{n}", n=n), id=one)
        assert set((await homes(postgres_url)).values()) == {"postlude_event_default"}
        await kill(app, 0)
        assert await app.store.upkeep.prune(events_hours=24, dead_hours=0, limit=4) == 0
        app.clock.advance(25 * HOUR)
        pruned = [await app.store.upkeep.prune(events_hours=24, dead_hours=0, limit=4) for _ in range(3)]
        assert pruned == [8, 4, 0], "six events and six receipts, at most four of each at a time"
        assert set(await homes(postgres_url)) == {ids[0]}


async def test_old_v7_ids_of_a_day_without_partition_are_pruned_too(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with app:
        old = await append_old(app, 1)
        assert await homes(postgres_url) == {old: "postlude_event_default"}
        await app.drain()
        app.clock.advance(25 * HOUR)
        assert await app.store.upkeep.prune(events_hours=24, dead_hours=0, limit=100) == 2
        assert await homes(postgres_url) == {}


async def test_settled_events_are_pruned(sqlite_url: str) -> None:
    app = routed_app(sqlite_url)
    async with app:
        await note(app, "a", *range(1, 6))
        await kill(app, 1)
        await note(app, "b", 6)
        app.clock.advance(25 * HOUR)
        await note(app, "c", 7)
        await app.drain()
        assert [await app.store.upkeep.prune(events_hours=24, dead_hours=0, limit=3) for _ in range(3)] == [6, 3, 0]
        kept = await query(
            sqlite_url, "SELECT json_extract(CAST(payload AS TEXT), '$.n') FROM postlude_event ORDER BY 1"
        )
        assert kept == [(1,), (7,)]
        (letter,) = await app.insight.list()
        assert letter.status == "dead"


# ---------------------------------------------------------------- dead letters


async def test_dead_letters_survive_by_default(database_url: str) -> None:
    app = routed_app(database_url)
    async with app:
        await note(app, "a", 1, 2)
        await kill(app, 1)
        app.clock.advance(10_000 * HOUR)
        duty = next(duty for duty in app.engine.duties() if isinstance(duty, Retention))
        for _ in range(3):
            await duty.round()
        (letter,) = await app.insight.list(status="dead")
        assert [one.event_id async for one in app.insight.export()] == [letter.event_id]
        assert len(await app.insight.list(status="sent")) == len(await app.insight.list(status="discarded")) == 0
        assert await app.actions.requeue([letter.event_id], **WHO) == [letter.event_id]
        await app.drain()
        assert published(app) == [2, 1]


async def test_dead_letters_go_only_when_asked_and_are_audited(database_url: str) -> None:
    app = routed_app(database_url, retention={"dead_hours": 48, "events_hours": 0})
    async with app:
        await note(app, "a", 1, 2)
        await kill(app, 1)
        (letter,) = await app.insight.list(status="dead")
        duty = next(duty for duty in app.engine.duties() if isinstance(duty, Retention))
        app.clock.advance(47 * HOUR)
        await duty.round()
        assert len(await app.insight.list(status="dead")) == 1
        app.clock.advance(2 * HOUR)
        await duty.round()
        assert len(await app.insight.list()) == 0
        story = await app.insight.event(letter.event_id)
        (receipt,) = story.receipts
        assert (receipt.outcome, receipt.actor) == ("discarded", "duty:retention")
        (audit,) = await app.insight.audits(target=str(letter.event_id))
        assert (audit["action"], audit["actor"], audit["reason"]) == (
            "discard",
            "duty:retention",
            "retention.dead_hours",
        )
        assert audit["detail"] == {"destination": "default", "prior_attempts": 1}


# ---------------------------------------------------------------- ids of the future


async def test_ids_more_than_a_day_ahead_are_refused(database_url: str) -> None:
    app = routed_app(database_url)
    async with app:
        async with app.transaction() as tx:
            with pytest.raises(InvalidId, match="claims to be made"):
                await app.outbox.append(tx, Noted(key="a", n=1), id=id_of(datetime.now(UTC) + timedelta(hours=25)))
            near = await app.outbox.append(tx, Noted(key="a", n=2), id=id_of(datetime.now(UTC) + timedelta(hours=23)))
        await app.drain()
        assert published(app) == [2]
        assert (await app.insight.event(near)).receipts
