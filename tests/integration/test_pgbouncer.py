"""Through the real PgBouncer in transaction mode: every transaction may run in another session."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from postlude import ConnectionClosed, Context, DatabaseUnavailable, Postlude
from postlude.cli.doctor import _examine
from postlude.storage.postgres.store import PostgresStore
from postlude.testing.clock import ManualClock
from tests.engine import Noted, arrived, is_settled, make_app, note, published, query, routed_app, until
from tests.worker_process import EFFECTS, WorkerProcess
from tools.pgbouncer import PgBouncer

KEYS = [f"key-{i}" for i in range(12)]
SHORT = {"lane": {"lease": 1.5}}


@pytest.fixture(params=["asyncpg", "psycopg"])
def url(request: pytest.FixtureRequest, pgbouncer_url: str) -> str:
    """Through PgBouncer, by each of the store's drivers."""
    return pgbouncer_url.replace("postgresql://", f"postgresql+{request.param}://")


@asynccontextmanager
async def closing(app: Postlude) -> AsyncIterator[Postlude]:
    try:
        yield app
    finally:
        await app.close()


async def console(bouncer: PgBouncer, command: str) -> list[Any]:
    """The answer of PgBouncer's own console; PAUSE is answered when nothing is under way any more."""
    async with await psycopg.AsyncConnection.connect(bouncer.url("pgbouncer"), autocommit=True) as connection:
        cursor = await connection.execute(command)
        return list(await cursor.fetchall()) if cursor.description else []


async def succeeds(act: Callable[[], Awaitable[object]]) -> bool:
    try:
        await act()
    except (DatabaseUnavailable, ConnectionClosed):
        return False
    return True


async def assert_all_delivered(url: str) -> None:
    """Nothing is left, and nothing was tried twice."""
    assert await query(url, "SELECT count(*) FROM postlude_delivery") == [(0,)]
    assert await query(url, "SELECT DISTINCT attempts FROM postlude_receipt") == [(1,)]


# ---------------------------------------------------------------- noticing it


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_pooler_is_noticed_and_a_server_is_not_taken_for_one(
    any_postgres_url: str, pgbouncer_url: str, driver: str
) -> None:
    for address, is_pooled in ((any_postgres_url, False), (pgbouncer_url, True)):
        store = PostgresStore(address, clock=ManualClock(), driver=driver)
        await store.open()
        server = await store.server()
        assert (server["is_pooled"], server["jit"]) == (is_pooled, "on" if is_pooled else "off")
        assert store.database.driver.name == driver
        await store.close()


async def test_many_at_once_need_no_session_of_their_own(url: str) -> None:
    async with closing(make_app(url)) as app:
        counted = await asyncio.gather(*(app.insight.counts() for _ in range(200)))
    assert [sum(counts.values()) for counts in counted] == [0] * 200


async def test_settings_in_the_url_are_refused_with_a_way_out(url: str) -> None:
    async with closing(make_app(f"{url}?options=-c%20work_mem%3D5MB")) as app:
        with pytest.raises(DatabaseUnavailable, match="ALTER ROLE"):
            await app.insight.counts()


async def test_doctor_says_what_follows_from_it(url: str, any_postgres_url: str) -> None:
    async with closing(routed_app(url)) as app:
        found = {one.check: one for one in (await _examine(app))[0]}
        assert found["pooler"].status == "warn"
        assert "ALTER ROLE name SET jit = off" in found["pooler"].hint
        assert "pool" not in found
    async with closing(routed_app(any_postgres_url)) as app:
        found = {one.check: one for one in (await _examine(app))[0]}
        assert "pooler" not in found
        assert "pool" in found


# ---------------------------------------------------------------- working through it


async def test_the_schema_is_made_and_days_are_retired_through_it(url: str, any_postgres_url: str) -> None:
    await query(any_postgres_url, "DROP SCHEMA public CASCADE")
    async with closing(routed_app(url, retention={"events_hours": 24})) as app:
        assert await app.db.upgrade()
        assert await app.db.verify() == []
        await note(app, "a", 1)
        await app.drain()
        app.clock.advance(3 * 86_400)
        assert await app.store.upkeep.retire_partitions(24)
    assert await query(any_postgres_url, "SELECT count(*) FROM postlude_event") == [(0,)]


async def test_callers_append_on_their_own_connections(pgbouncer_url: str, url: str, any_postgres_url: str) -> None:
    async with closing(routed_app(url)) as app:
        asynchronous = await asyncpg.connect(pgbouncer_url, statement_cache_size=0)
        async with asynchronous.transaction():
            await app.outbox.append_many(asynchronous, [Noted(key="a", n=n) for n in (1, 2)])
            await app.outbox.append(asynchronous, Noted(key="a", n=3))
        await asynchronous.close()
        async with await psycopg.AsyncConnection.connect(pgbouncer_url, prepare_threshold=None) as connection:
            for n in range(4, 14):
                await app.outbox.append(connection, Noted(key="a", n=n))
        await app.drain()
        assert published(app) == list(range(1, 14))
    await assert_all_delivered(any_postgres_url)


@pytest.mark.parametrize(
    ("dialect", "options"),
    [
        ("postgresql+psycopg", {"prepare_threshold": None}),
        ("postgresql+asyncpg", {"statement_cache_size": 0, "prepared_statement_name_func": lambda: f"__{uuid4()}__"}),
    ],
    ids=["psycopg", "asyncpg"],
)
async def test_sessions_of_sqlalchemy_append_too(pgbouncer_url: str, dialect: str, options: dict[str, Any]) -> None:
    address = pgbouncer_url.replace("postgresql", dialect)
    parameters = "?prepared_statement_cache_size=0" if dialect.endswith("asyncpg") else ""
    engine = create_async_engine(f"{address}{parameters}", connect_args=options)
    async with closing(routed_app(pgbouncer_url)) as app:
        for n in range(8):
            async with AsyncSession(engine) as first, AsyncSession(engine) as second:
                await app.outbox.append(first, Noted(key="a", n=2 * n))
                await app.outbox.append(second, Noted(key="b", n=2 * n + 1))
                await second.commit()
                await first.commit()
        await engine.dispose()
        await app.drain()
        assert published(app, "a") == list(range(0, 16, 2))
        assert published(app, "b") == list(range(1, 16, 2))


async def test_synchronous_code_appends_too(pgbouncer_url: str, any_postgres_url: str) -> None:
    app = routed_app(pgbouncer_url)

    def append() -> None:
        for _ in range(2):  # the second finds the session of the first
            with app.sync.transaction() as tx:
                for n in range(8):
                    app.sync.outbox.append(tx, Noted(key="a", n=n))

    async with closing(app):
        await asyncio.to_thread(append)
        await app.drain()
        assert published(app) == [*range(8), *range(8)]
    await assert_all_delivered(any_postgres_url)


async def test_a_statement_that_a_caller_keeps_is_lost_and_the_error_says_why(pgbouncer_url: str) -> None:
    async with closing(routed_app(pgbouncer_url)) as app:
        keeping = await asyncpg.connect(pgbouncer_url)
        async with keeping.transaction():
            await app.outbox.append(keeping, Noted(key="a", n=1))
        async with await psycopg.AsyncConnection.connect(pgbouncer_url) as other:
            await other.execute("SELECT 1")  # has the session that remembers
            with pytest.raises(asyncpg.InvalidSQLStatementNameError) as told:
                async with keeping.transaction():
                    await app.outbox.append(keeping, Noted(key="a", n=2))
        assert "statement_cache_size=0" in "".join(told.value.__notes__)
        await keeping.close()


async def test_a_worker_serves_brokers_and_handlers(
    url: str, any_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postlude.store")
    await query(any_postgres_url, "CREATE TABLE effect (key text, n int)")
    app = routed_app(url)
    place = "(%s, %s)" if "+psycopg" in url else "($1, $2)"

    @app.on(Noted, name="effect")
    async def effect(noted: Noted, ctx: Context) -> None:
        values: Any = [noted.key, noted.n]
        given = (values,) if "+psycopg" in url else values
        await ctx.tx.execute(f"INSERT INTO effect (key, n) VALUES {place}", *given)

    async with closing(app), app.worker():
        for n in range(10):
            await asyncio.gather(*(note(app, key, n) for key in KEYS))
        await until(lambda: has_effects(any_postgres_url, 10 * len(KEYS)))
        await until(lambda: len(published(app)) == 10 * len(KEYS))
        assert all(published(app, key) == list(range(10)) for key in KEYS)
    await assert_all_delivered(any_postgres_url)
    assert sum("LISTEN does not work" in record.message for record in caplog.records) == 1
    listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    assert await query(any_postgres_url, listening) == [(0,)]


async def has_effects(url: str, count: int) -> bool:
    return await query(url, "SELECT count(*) FROM effect") == [(count,)]


# ---------------------------------------------------------------- when it goes wrong


async def test_lanes_are_taken_over_after_kill_9(url: str, any_postgres_url: str) -> None:
    await query(any_postgres_url, EFFECTS)
    with WorkerProcess(url, **SHORT) as first:
        await first.says("ready")
        async with closing(make_app(url)) as app:
            app.on(Noted, name="effect")(lambda noted: None)
            await note(app, "stop", 1)
            await first.says("inside stop")
            await note(app, "other", 2)
        with WorkerProcess(url, **SHORT) as second:
            await second.says("ready")
            first.send(signal.SIGKILL)
            # What the first has written is gone with its session, though PgBouncer's connection lives on.
            await second.says("inside stop")
            second.send(signal.SIGUSR1)
            await until(lambda: has_effects(any_postgres_url, 2))
    assert await query(any_postgres_url, "SELECT key, n FROM effect ORDER BY n") == [("stop", 1), ("other", 2)]


async def test_a_pause_is_an_outage_that_burns_nothing(url: str, any_postgres_url: str, pgbouncer: PgBouncer) -> None:
    app = routed_app(url, lane={"lease": 1.0}, pool={"command_timeout": 3})
    async with closing(app), app.worker():
        await note(app, "a", 1)
        await arrived(app, 1)
        await until(lambda: is_settled(any_postgres_url))  # or it would be sent again afterwards
        await console(pgbouncer, "PAUSE")
        assert not await succeeds(lambda: note(app, "a", 0))  # no answer within the command's time
        await query(any_postgres_url, "SELECT pg_sleep(1.2)")  # until the lease is over as well
        await console(pgbouncer, "RESUME")
        await until(lambda: succeeds(lambda: note(app, "a", 2)))
        await arrived(app, 2)
    assert [n for n in published(app) if n] == [1, 2]
    await assert_all_delivered(any_postgres_url)


async def test_a_restart_of_the_pooler_is_an_outage_that_burns_nothing(
    url: str, any_postgres_url: str, pgbouncer: PgBouncer
) -> None:
    app = routed_app(url)
    async with closing(app), app.worker():
        await note(app, "a", 1)
        await arrived(app, 1)
        pgbouncer.kill()
        assert not await succeeds(lambda: note(app, "a", 0))
        pgbouncer.start()
        await until(lambda: succeeds(lambda: note(app, "a", 2)))
        await arrived(app, 2)
    await assert_all_delivered(any_postgres_url)
