"""What psycopg does not do by itself: never wait for ever, fail soon, and be the only driver there is."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from postlude import DatabaseUnavailable
from postlude.storage.postgres.driver import RELEASE, PoolOptions, SessionOptions
from postlude.storage.postgres.driver_psycopg import PsycopgDriver
from postlude.storage.postgres.store import PostgresStore
from postlude.testing.clock import ManualClock
from tests.engine import query, until
from tests.source_tree import ROOT
from tools.servers import PostgresServer

ALONE = """
import asyncio, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "asyncpg":
            raise ModuleNotFoundError("asyncpg is not installed here", name="asyncpg")

sys.meta_path.insert(0, Refusing())
from postlude import Event, Postlude, Settings, event

@event(key="key", topic="noted")
class Noted(Event):
    key: str

async def main(url):
    app = Postlude(url, broker="memory://", settings=Settings.load(environ={}))
    app.route(Noted)
    handled = asyncio.Event()

    @app.on(Noted, name="effect")
    async def effect(noted, ctx):
        await ctx.tx.execute("INSERT INTO effect VALUES (%s)", [noted.key])

    @app.on(Noted, name="told")
    async def told(noted):
        handled.set()

    async with app, app.worker():
        async with app.transaction() as tx:
            await tx.execute("CREATE TABLE effect (key text)")
            await app.outbox.append(tx, Noted(key="a"))
        await asyncio.wait_for(handled.wait(), 30)
    await app.drain()
    assert "asyncpg" not in sys.modules
    print([message.key for message in app.broker().messages("noted")], await app.insight.counts())
    await app.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_the_worker_runs_with_psycopg_alone(any_postgres_url: str) -> None:
    command = [sys.executable, "-c", ALONE, any_postgres_url]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("['a'] ")
    assert ran.stderr == ""
    assert await query(any_postgres_url, "SELECT key FROM effect") == [("a",)]
    assert await query(any_postgres_url, "SELECT count(*) FROM postlude_delivery") == [(0,)]


@asynccontextmanager
async def store_of(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, clock=ManualClock(), driver="psycopg", pool=PoolOptions(**options))
    try:
        yield store
    finally:
        await store.close()


async def is_running(url: str, statement: str, sessions: int) -> bool:
    active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND datname = current_database()"
    return await query(url, f"{active} AND query = '{statement}'") == [(sessions,)]


async def test_a_statement_without_an_answer_ends_with_its_session(any_postgres_url: str) -> None:
    async with store_of(any_postgres_url, max=1) as store:
        async with store.database.connection() as connection:
            connection.patience = 0.2
            with pytest.raises(psycopg.OperationalError, match=r"no answer within 0\.2 seconds"):
                await store.database.ask(connection, "SELECT pg_sleep(62)")
        await until(lambda: is_running(any_postgres_url, "SELECT pg_sleep(62)", 0))
        assert await store.reading.last_seq() == 0


async def test_a_session_that_hangs_is_cut_when_its_caller_gives_up(private_postgres: PostgresServer) -> None:
    async with store_of(private_postgres.dsn, max=1, command_timeout=60) as store:
        async with store.database.connection() as connection:
            pid = connection.info.backend_pid
            os.kill(pid, signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await store.database.ask(connection, "SELECT 1")
        try:
            assert RELEASE < time.monotonic() - began < 30
            async with store.database.connection() as connection:
                assert connection.info.backend_pid != pid
                assert await store.database.value(connection, "SELECT 1") == 1
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_a_cancelled_statement_ends_at_the_server_too(any_postgres_url: str) -> None:
    async with store_of(any_postgres_url, max=1) as store:

        async def sleep() -> None:
            async with store.database.transaction() as connection:
                await store.database.ask(connection, "SELECT pg_sleep(61)")

        task = asyncio.create_task(sleep())
        await until(lambda: is_running(any_postgres_url, "SELECT pg_sleep(61)", 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: is_running(any_postgres_url, "SELECT pg_sleep(61)", 0))
        async with store.database.transaction() as connection:
            assert await store.database.value(connection, "SELECT 1") == 1


async def test_whoever_waits_for_a_connection_gets_it_when_it_comes_back(any_postgres_url: str) -> None:
    async with store_of(any_postgres_url, max=1) as store:
        async with store.database.connection() as connection:
            waiting = asyncio.create_task(store.reading.last_seq())
            await store.database.ask(connection, "SELECT pg_sleep(0.6)")  # longer than it looks for the first time
            assert not waiting.done()
        assert await waiting == 0


async def test_a_full_pool_says_so_in_time(any_postgres_url: str) -> None:
    async with store_of(any_postgres_url, max=1, command_timeout=2) as store, store.database.connection():
        with pytest.raises(DatabaseUnavailable, match="couldn't get a connection"):
            await store.reading.last_seq()


async def test_an_outage_is_told_soon_with_its_cause_and_without_the_drivers_own_lines(
    private_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with store_of(private_postgres.dsn) as store:
        await store.schema.upgrade(lanes=8)
        assert await store.reading.last_seq() == 0
        private_postgres.kill()
        began = time.monotonic()
        for _ in range(10):
            with pytest.raises(DatabaseUnavailable) as told:
                await store.reading.last_seq()
        assert time.monotonic() - began < 30
        # The last attempt may have been under way when the server was killed.
        assert any(cause in str(told.value) for cause in ("refused", "closed the connection"))
        private_postgres.start()
        await until(lambda: _answers(store))
    assert [record for record in caplog.records if record.name.startswith("psycopg")] == []


async def _answers(store: PostgresStore) -> bool:
    try:
        return await store.reading.last_seq() == 0
    except DatabaseUnavailable:
        return False


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_session_has_our_settings_and_those_of_the_url(any_postgres_url: str, driver: str) -> None:
    url = f"{any_postgres_url}?application_name=shop&options=-c%20work_mem%3D5MB&sslmode=prefer"
    store = PostgresStore(url, clock=ManualClock(), driver=driver)
    for connection in (store.database.connection(), store.schema._connection()):  # type: ignore[attr-defined]
        async with connection as opened:
            told = [
                await store.database.value(opened, f"SELECT current_setting('{name}')")
                for name in ("application_name", "work_mem", "jit", "plan_cache_mode")
            ]
        assert told == ["shop", "5MB", "off", "force_custom_plan"]
    await store.close()


async def test_statements_are_prepared_unless_the_session_keeps_none(any_postgres_url: str) -> None:
    for keeps in (True, False):
        driver = PsycopgDriver(any_postgres_url, SessionOptions(keep_statements=keeps))
        connection = await driver.connect(timeout=30)
        for _ in range(10):
            await connection.execute("SELECT %s::int", [1])
        found = await (await connection.execute("SELECT count(*) FROM pg_prepared_statements")).fetchone()
        assert (found[0] > 0) is keeps
        await driver.close(connection)
