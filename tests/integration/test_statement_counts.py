"""What a delivery and an append cost in statements and round trips."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from postlude import Postlude
from postlude.storage.postgres.connection import Database
from tests.databases import Databases, PostgresDatabases
from tests.engine import Noted, query, routed_app, until

EVENTS = 20_000
AT_ONCE = 5_000
BATCH = 500
MOST = 0.02
"""Statements for each relayed event."""
OVERHEAD = 60
"""Transactions of a process that are no statements of ours: connecting, renewing its lease, listening."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement was run on the worker's pool."""
    seen: Counter[str] = Counter()
    real = Database.fetch_on

    async def fetch_on(self: Database, connection: Any, name: str, /, **values: Any) -> Any:
        seen[name] += 1
        return await real(self, connection, name, **values)

    monkeypatch.setattr(Database, "fetch_on", fetch_on)
    return seen


@pytest.fixture
def server(any_postgres_database: Databases) -> PostgresDatabases:
    assert isinstance(any_postgres_database, PostgresDatabases)
    return any_postgres_database


async def commits(server: PostgresDatabases, url: str) -> int:
    """What the server itself counted, asked from another database so that asking counts for nothing."""
    database = url.rsplit("/", 1)[1]
    sql = f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'"
    return int((await query(server.server.dsn, sql))[0][0])


async def fill(url: str) -> None:
    """In a few big transactions of an app that is gone afterwards, with all that it counted."""
    async with routed_app(url) as app:
        for start in range(0, EVENTS, AT_ONCE):
            async with app.transaction() as tx:
                numbers = range(start, start + AT_ONCE)
                await app.outbox.append_many(tx, [Noted(key=f"key-{n % 1000}", n=n) for n in numbers])


async def settled_commits(server: PostgresDatabases, url: str, least: int) -> int:
    """The server's count once every session that ended has told it what it did."""

    database = url.rsplit("/", 1)[1]
    sessions = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{database}' AND backend_type = 'client backend'"

    async def is_told() -> bool:
        return not await query(server.server.dsn, sessions) and await commits(server, url) >= least

    await until(is_told)
    return await commits(server, url)


@asynccontextmanager
async def counted(server: PostgresDatabases, url: str, asked: Counter[str]) -> AsyncIterator[Postlude]:
    """An app that has everything to deliver; at the end its statements must have been few, by both counts."""
    await fill(url)
    before = await settled_commits(server, url, 1)
    asked.clear()
    app = routed_app(url, relay={"batch_size": BATCH})
    async with app:
        yield app
    ours = asked.total()
    assert len(app.broker().messages()) == EVENTS
    assert ours <= MOST * EVENTS, asked
    delta = await settled_commits(server, url, before + ours) - before
    assert ours <= delta <= MOST * EVENTS + OVERHEAD, (ours, delta)


async def test_a_drain_takes_few_statements(server: PostgresDatabases, asked: Counter[str]) -> None:
    url = server.fresh()
    async with counted(server, url, asked) as app:
        assert await app.drain() == EVENTS


async def test_a_running_worker_takes_few_statements(server: PostgresDatabases, asked: Counter[str]) -> None:
    url = server.fresh()
    async with counted(server, url, asked) as app, app.worker() as worker:
        await until(lambda: worker.relays["default"].settled == EVENTS)


# ---------------------------------------------------------------- appending


class Caller:
    """A caller's own connection, and eyes on what is asked on it."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.connection = connection
        self._queries: list[str] = []
        connection.add_query_logger(lambda record: self._queries.append(record.query))

    async def asked(self, work: Awaitable[Any]) -> list[str]:
        """What the work asked. The driver tells its loggers in the next turn of the loop."""
        await asyncio.sleep(0)
        self._queries.clear()
        await work
        await asyncio.sleep(0)
        return list(self._queries)


@pytest.fixture
async def caller(any_postgres_url: str) -> AsyncIterator[Caller]:
    """In a transaction, on a connection that is not new: on its first arrays asyncpg asks the catalogue about them."""
    connection = await asyncpg.connect(any_postgres_url)
    async with routed_app(any_postgres_url) as app, connection.transaction():
        await app.outbox.append(connection, Noted(key="old", n=0))
        await app.outbox.append_many(connection, [Noted(key="old", n=n) for n in (1, 2)])
    async with connection.transaction():
        yield Caller(connection)
    await connection.close()


async def test_an_append_is_one_round_trip(any_postgres_url: str, caller: Caller) -> None:
    app = routed_app(any_postgres_url)
    first = await caller.asked(app.outbox.append(caller.connection, Noted(key="a", n=1)))
    assert len(first) == 2, "it learns the number of lanes, once"
    assert "postlude_meta" in first[0]
    for n in (2, 3):
        (only,) = await caller.asked(app.outbox.append(caller.connection, Noted(key="a", n=n)))
        assert "INSERT INTO" in only


async def test_an_app_that_was_started_knows_its_lanes_at_the_first_append(
    any_postgres_url: str, caller: Caller
) -> None:
    async with routed_app(any_postgres_url) as app:
        (only,) = await caller.asked(app.outbox.append(caller.connection, Noted(key="a", n=1)))
        assert "INSERT INTO" in only


@pytest.mark.parametrize("count", [2, 1000])
async def test_many_events_are_one_statement(any_postgres_url: str, caller: Caller, count: int) -> None:
    events = [Noted(key=f"key-{n % 7}", n=n) for n in range(count)]
    async with routed_app(any_postgres_url) as app:
        (only,) = await caller.asked(app.outbox.append_many(caller.connection, events))
        assert "INSERT INTO" in only
        appended = await caller.connection.fetchval("SELECT count(*) FROM postlude_delivery WHERE key <> 'old'")
        assert appended == count
