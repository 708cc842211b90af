"""Per key, what committed before another append began is first delivered before it (promise 4), whatever happens.

Transactions are held open on connections of their own; nothing here waits for a time to pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest

from postlude import Context, DatabaseUnavailable, Postlude
from postlude.core.outcome import Failed, Fault
from postlude.runtime.worker import Worker
from tests.engine import (
    Eyes,
    Noted,
    arrived,
    held,
    key_in,
    make_app,
    note,
    notes,
    published,
    query,
    routed_app,
    until,
    watch,
)

FAILED = Failed(Fault("Refused"))
AN_HOUR = {"base_delay_seconds": 3600, "max_backoff_seconds": 3600, "jitter_factor": 0}


@asynccontextmanager
async def working(app: Postlude) -> AsyncIterator[tuple[Worker, Eyes]]:
    """The app with a worker that runs by itself, under eyes."""
    eyes = watch(app)
    async with app, app.worker() as worker:
        yield worker, eyes


async def looked(eyes: Eyes, times: int = 5) -> None:
    """Let the worker look at the sequence a few more times, so that whatever it may forget by now is forgotten."""
    seen = eyes.calls.get("last_seq", 0)
    await until(lambda: eyes.calls.get("last_seq", 0) >= seen + times)


async def seq_of(url: str, n: int) -> int:
    """The seq of an open delivery, by its place among the open ones."""
    return int((await query(url, "SELECT seq FROM postlude_delivery ORDER BY seq"))[n][0])


# ---------------------------------------------------------------- floors


async def test_a_late_committer_is_not_overtaken_by_its_key(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with working(app) as (_, eyes):
        for turn in range(10):
            key, first = f"late-{turn}", 3 * turn
            async with held(postgres_url) as late:
                await app.outbox.append(late.connection, Noted(key=key, n=first))
                await note(app, "other", first + 1)
                await arrived(app, first + 1)
                await looked(eyes)
                await late.commit()
            await note(app, key, first + 2)
            await arrived(app, first, first + 2)
            assert published(app, key) == [first, first + 2]


async def test_a_late_committer_in_a_prepared_transaction_is_not_overtaken_by_its_key(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    key = key_in(3)
    other = key_in(3, without={key})
    async with working(app) as (_, eyes):
        async with held(postgres_url) as late:
            await app.outbox.append(late.connection, Noted(key=key, n=0))
            await note(app, other, 1)
            await until(lambda: published(app) == [1])
            await looked(eyes)
            await late.connection.execute("PREPARE TRANSACTION 'late'")
            late.is_open = False
        await looked(eyes)
        for n in (2, 3):
            await note(app, other, n)
            await arrived(app, n)
            await looked(eyes)
        await query(postgres_url, "COMMIT PREPARED 'late'")
        await note(app, key, 4)
        await until(lambda: len(published(app, key)) == 2)
    assert published(app, key) == [0, 4]


async def test_a_head_due_under_a_floor_goes_before_its_followers(database_url: str) -> None:
    app = routed_app(database_url, retry=AN_HOUR)
    refused: list[int] = []

    def refuse_the_head_once(message: Any) -> Failed | None:
        if b'"n":1' in message.payload and not refused:
            refused.append(1)
            return FAILED
        return None

    app.broker().fate = refuse_the_head_once
    lane = 7
    key, other = key_in(lane), key_in(lane, without={key_in(lane)})
    async with working(app) as (_, eyes):
        await note(app, key, 1, 2)
        await until(lambda: bool(refused))
        await note(app, other, 3)
        await until(lambda: published(app) == [3])
        follower = await seq_of(database_url, 1)
        await _pass_floor(app, eyes, other, lane, follower)
        await note(app, key, 5)
        await looked(eyes)
        assert published(app, key) == []
        app.clock.advance(3601)
        await until(lambda: len(published(app, key)) == 3)
    assert published(app, key) == [1, 2, 5]


async def test_a_key_freed_between_probe_and_read_keeps_its_order(database_url: str) -> None:
    app = make_app(database_url)
    handled: list[int] = []
    second_try, go_on = asyncio.Event(), asyncio.Event()

    @app.on(Noted, name="handler", transactional=False)
    async def handle(noted: Noted, ctx: Context) -> None:
        if noted.n == 1 and ctx.attempt == 1:
            raise RuntimeError("not yet")
        if noted.n == 1:
            second_try.set()
            await go_on.wait()
        handled.append(noted.n)

    lane = 7
    key, other = key_in(lane), key_in(lane, without={key_in(lane)})
    async with working(app) as (_, eyes):
        await note(app, key, 1, 2)
        await second_try.wait()
        follower = await seq_of(database_url, 1)
        await _pass_floor(app, eyes, other, lane, follower, handled)

        async def free_the_key(*_: Any) -> None:
            """The probe is over and the read not yet begun: the head is settled, and a newer entry appended."""
            eyes.before.clear()
            go_on.set()
            await until(lambda: _is_settled(database_url, follower - 1))
            await note(app, key, 3)

        eyes.before["read_pending"] = free_the_key
        await note(app, other, 99)
        await until(lambda: 3 in handled)
    assert [n for n in handled if n <= 3] == [1, 2, 3]


async def _pass_floor(
    app: Postlude, eyes: Eyes, key: str, lane: int, seq: int, handled: list[int] | None = None
) -> None:
    """Let another key of the lane go on until the lane is read from above that seq."""
    destination = "default" if handled is None else "handler:handler"
    for n in range(100, 200):
        await note(app, key, n)
        if handled is None:
            await arrived(app, n)
        else:
            await until(partial(handled.__contains__, n))
        if eyes.floors[destination, lane] >= seq:
            return
    pytest.fail("the floor never passed the waiting entry")


def _has_published(app: Postlude, count: int) -> bool:
    return bool(app.broker().published == count)


async def _is_settled(url: str, seq: int) -> bool:
    return not await query(url, f"SELECT 1 FROM postlude_delivery WHERE seq = {seq}")


# ---------------------------------------------------------------- foreign transactions


async def test_a_foreign_idle_writer_and_an_idle_reader_do_not_stop_the_floors(postgres_url: str) -> None:
    """Their xids pin every snapshot of the server; floors do not care, for they look at who appends."""
    app = routed_app(postgres_url)
    await query(postgres_url, "CREATE TABLE foreign_thing (id int)")
    async with held(postgres_url) as writer, held(postgres_url, "BEGIN ISOLATION LEVEL REPEATABLE READ") as reader:
        await writer.connection.execute("INSERT INTO foreign_thing VALUES (1)")
        await reader.connection.fetch("SELECT count(*) FROM postlude_delivery")
        async with working(app) as (worker, eyes):
            lane = 3
            key = key_in(lane)
            for n in range(30):
                await note(app, key, n)
                await arrived(app, n)
            assert published(app) == list(range(30))
            assert worker.relays["default"].settled >= 29
            last = (await query(postgres_url, "SELECT last_value FROM postlude_delivery_seq_seq"))[0][0]
            assert eyes.floors["default", lane] >= last - 3
            assert await app.drain(timeout=5) == 0


async def test_an_idle_appender_holds_back_floors_but_no_delivery(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with held(postgres_url) as idle:
        await app.outbox.append(idle.connection, Noted(key=key_in(3), n=1000))
        async with working(app) as (_, eyes):
            for n in range(20):
                await note(app, key_in(3), n)
                await arrived(app, n)
            assert eyes.floors["default", 3] == 0
            await idle.commit()
            await until(lambda: len(published(app)) == 21)
    assert published(app) == [*range(20), 1000]


# ---------------------------------------------------------------- callers' transactions


async def test_a_rolled_back_savepoint_leaves_nothing(database_url: str) -> None:
    app = routed_app(database_url)
    async with app:
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="a", n=1))
            if isinstance(tx, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
                with pytest.raises(ZeroDivisionError):
                    async with tx.transaction():
                        await app.outbox.append(tx, Noted(key="a", n=2))
                        raise ZeroDivisionError
            else:
                tx.execute("SAVEPOINT inner_part")
                await app.outbox.append(tx, Noted(key="a", n=2))
                tx.execute("ROLLBACK TO inner_part")
            await app.outbox.append(tx, Noted(key="a", n=3))
        await app.drain()
        assert published(app) == [1, 3]
        assert await query(database_url, "SELECT count(*) FROM postlude_event") == [(2,)]
        assert await query(database_url, "SELECT count(*) FROM postlude_delivery") == [(0,)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_repeatable_read_caller_appends_in_order(postgres_url: str, level: str) -> None:
    """Its snapshot hides what was committed since; the order of its key does not depend on it."""
    app = routed_app(postgres_url)
    async with working(app) as (_, eyes):
        async with held(postgres_url, f"BEGIN ISOLATION LEVEL {level}") as caller:
            await caller.connection.fetch("SELECT count(*) FROM postlude_event")
            await note(app, "a", 1)
            await until(lambda: published(app) == [1])
            await app.outbox.append(caller.connection, Noted(key="a", n=2))
            await app.outbox.append_many(caller.connection, [Noted(key="a", n=3), Noted(key="b", n=4)])
            await looked(eyes)
            assert published(app) == [1]
            await caller.commit()
        await note(app, "a", 5)
        await until(lambda: len(published(app)) == 5)
    assert published(app, "a") == [1, 2, 3, 5]


async def test_a_handler_that_meets_a_serialisation_failure_burns_no_attempt(any_postgres_url: str) -> None:
    pool = await asyncpg.create_pool(any_postgres_url, min_size=1, max_size=4)

    @asynccontextmanager
    async def repeatable_read() -> AsyncIterator[Any]:
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            yield connection

    app = make_app(any_postgres_url)
    app.engine._factory = repeatable_read
    attempts: list[int] = []
    await query(any_postgres_url, "CREATE TABLE counter AS SELECT 0 AS n")

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        await ctx.tx.fetch("SELECT n FROM counter")
        if len(attempts) == 1:
            await query(any_postgres_url, "UPDATE counter SET n = n + 10")
        await ctx.tx.execute("UPDATE counter SET n = n + 1")

    async with pool, app:
        await note(app, "a", 1)
        assert await app.drain(timeout=10) == 1
        assert attempts == [1, 1]
        assert await query(any_postgres_url, "SELECT n FROM counter") == [(11,)]


# ---------------------------------------------------------------- blocked keys

HEADS, FOLLOWERS = 64, 100_000


async def _fill(url: str, keys: list[str]) -> None:
    """One head and many followers a key, as plain SQL: rows in seq order, heads first."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            """
            WITH entry AS MATERIALIZED (
                SELECT gen_random_uuid() AS id, k.key, k.lane, g.n FROM generate_series(0, $3::int - 1) AS g (n)
                 CROSS JOIN unnest($1::text[], $2::smallint[]) AS k (key, lane) ORDER BY g.n
            ), event AS (
                INSERT INTO postlude_event (event_id, type, key, topic, payload, digest)
                SELECT id, 'test.noted', key, 'noted', json_build_object('key', key, 'n', n)::text::bytea, '' FROM entry
            )
            INSERT INTO postlude_delivery (event_id, destination, lane, key)
            SELECT id, 'default', lane, key FROM entry ORDER BY n
            """,
            keys,
            list(range(HEADS)),
            1 + FOLLOWERS // HEADS,
        )
        await connection.execute("ANALYZE postlude_delivery")
    finally:
        await connection.close()


@pytest.mark.slow
async def test_100k_followers_behind_64_heads_cost_other_keys_nothing_for_several_reads(any_postgres_url: str) -> None:
    app = routed_app(any_postgres_url, retry=AN_HOUR)
    heads = [key_in(lane) for lane in range(HEADS)]
    others = [key_in(lane, without=heads) for lane in range(HEADS)]
    await _fill(any_postgres_url, heads)
    app.broker().fate = lambda message: FAILED if b'"n" : 0}' in message.payload else None
    async with working(app) as (_, eyes):
        await until(lambda: eyes.rows >= FOLLOWERS)
        rounds = 20
        for n in range(1 + rounds):
            async with app.transaction() as tx:
                await app.outbox.append_many(tx, [Noted(key=key, n=n) for key in others])
            await until(partial(_has_published, app, (1 + n) * HEADS))
            if n == 0:  # all of it was passed, once
                eyes.rows = eyes.largest = 0
        assert eyes.rows <= 3 * rounds * HEADS, "reads walk over what waits"
        assert eyes.largest <= 4 * HEADS
        assert not {noted.key for noted in notes(app.broker().messages())}.intersection(heads)

        app.broker().fate = None
        await query(any_postgres_url, "UPDATE postlude_delivery SET available_at = now() WHERE blocks AND lane = 0")
        await until(lambda: len(published(app, heads[0])) == 1 + FOLLOWERS // HEADS)
    assert published(app, heads[0]) == list(range(1 + FOLLOWERS // HEADS))


async def test_an_orphan_delivery_becomes_a_dead_letter_and_lets_others_through(database_url: str) -> None:
    """As many orphans as a read takes, in front of good work of the same lane."""
    app = routed_app(database_url, relay={"batch_size": 8})
    key, other = key_in(5), key_in(5, without={key_in(5)})
    async with app:
        await note(app, key, *range(20))
        await query(database_url, "DELETE FROM postlude_event")
        await note(app, other, 100)
        await note(app, key, 101)
        assert await app.drain() == 2
        assert published(app) == [100, 101]
        dead = await app.insight.list(status="dead")
        assert len(dead) == 20
        assert {letter.error for letter in dead} == {"EventMissing (delivery.event_missing)"}


async def test_what_is_held_in_a_pass_is_not_overtaken_in_it(database_url: str) -> None:
    handled: list[int] = []
    lost = [True]
    async with make_app(database_url, handler={"concurrency": 1}) as app:

        @app.on(Noted)
        async def book(noted: Noted) -> None:
            if lost:
                lost.clear()
                raise DatabaseUnavailable("for a moment")
            handled.append(noted.n)

        await note(app, "k", 1, 2, 3)
        assert await app.run_once() == 0
        await app.drain()
    assert handled == [1, 2, 3]
