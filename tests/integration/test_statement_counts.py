"""What delivering costs in statements: nothing is done row by row, neither by the worker nor by an append."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest

from postlude import Postlude
from tests.engine import Noted, note, query, routed_app, until

EVENTS = 20_000
BATCH = 500
AT_MOST = 0.02


class Statements:
    """Counts what an app's store sends, by name."""

    def __init__(self, app: Postlude) -> None:
        self.sent: Counter[str] = Counter()
        database = app.store.database  # type: ignore[attr-defined]  # both stores have one
        fetch = database.fetch

        async def counted(name: str, /, **values: Any) -> Any:
            self.sent[name] += 1
            return await fetch(name, **values)

        database.fetch = counted


async def _fill(app: Postlude, keys: int) -> None:
    for start in range(0, EVENTS, 1000):
        async with app.transaction() as tx:
            await app.outbox.append_many(tx, [Noted(key=f"key-{n % keys}", n=n) for n in range(start, start + 1000)])


async def _transactions(url: str) -> int:
    """As the server counts them. A session reports when it is idle, so ask until the number stands still."""
    last = -1
    while True:
        ((committed,),) = await query(
            url, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        )
        if committed <= last + 3:  # what asking costs
            return int(committed)
        last = committed
        await asyncio.sleep(1.1)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["drain", "worker"])
async def test_at_most_two_statements_for_a_hundred_relayed_events(any_postgres_url: str, way: str) -> None:
    app = routed_app(any_postgres_url, relay={"batch_size": BATCH})
    async with app:
        await _fill(app, keys=2000)
        before = await _transactions(any_postgres_url)
        statements = Statements(app)
        if way == "drain":
            assert await app.drain(timeout=50) == EVENTS
        else:
            async with app.worker():
                await until(lambda: app.broker().published >= EVENTS, patience=50)
        after = await _transactions(any_postgres_url)
    assert app.broker().published == EVENTS
    used = sum(statements.sent.values())
    assert used / EVENTS <= AT_MOST, statements.sent.most_common()
    assert statements.sent["settle_sent"] >= EVENTS / BATCH / 4, "the counter counts"
    # The server's own count has also what the test asked, the lease and the listening connection.
    assert (after - before) / EVENTS <= 1.5 * AT_MOST


class Wire:
    """Counts the round trips of a caller's connection."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._queries: list[str] = []
        connection.add_query_logger(lambda record: self._queries.append(record.query))

    async def queries(self) -> list[str]:
        await asyncio.sleep(0)  # loggers are called by the loop
        return self._queries


@pytest.mark.parametrize("count", [1, 2, 100])
async def test_one_round_trip_an_append(postgres_url: str, count: int) -> None:
    app = routed_app(postgres_url)
    async with app:
        connection = await asyncpg.connect(postgres_url)
        try:
            await _warm_up(app, connection)
            async with connection.transaction():
                wire = Wire(connection)
                events = [Noted(key=f"key-{n}", n=n) for n in range(count)]
                if count == 1:
                    await app.outbox.append(connection, events[0])
                else:
                    await app.outbox.append_many(connection, events)
                assert len(await wire.queries()) == 1
        finally:
            await connection.close()
        assert await app.drain() == count


async def _warm_up(app: Postlude, connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """A driver asks for the types of a statement once a connection."""
    transaction = connection.transaction()
    await transaction.start()
    event_id = await app.outbox.append(connection, Noted(key="a", n=0))
    await app.outbox.append(connection, Noted(key="a", n=0), id=event_id)
    await app.outbox.append_many(connection, [Noted(key="a", n=0), Noted(key="a", n=0)])
    await transaction.rollback()


async def test_an_append_that_is_repeated_asks_once_more(any_postgres_url: str) -> None:
    """Only then is the stored content compared."""
    app = routed_app(any_postgres_url)
    async with app:
        connection = await asyncpg.connect(any_postgres_url)
        try:
            await _warm_up(app, connection)
            async with connection.transaction():
                event_id = await app.outbox.append(connection, Noted(key="a", n=1))
                wire = Wire(connection)
                assert await app.outbox.append(connection, Noted(key="a", n=1), id=event_id) == event_id
                assert len(await wire.queries()) == 2
        finally:
            await connection.close()


async def test_an_idle_worker_only_peeks(any_postgres_url: str) -> None:
    """No reads of rows, and a number of statements that does not depend on lanes or destinations."""
    app = routed_app(any_postgres_url)
    for n in range(5):
        app.on(Noted, name=f"handler-{n}")(_nothing)
    async with app, app.worker():
        await note(app, "a", 1)
        await until(lambda: _is_empty(any_postgres_url))
        await asyncio.sleep(2)  # lively for a while after the last work
        statements = Statements(app)
        await asyncio.sleep(2)
        sent = statements.sent
        assert sent["last_seq"] > 0
        assert sent["read_pending"] == sent["news"] == sent["events"] == 0
        assert sent["read_due"] <= 7 * 2 * 3, "every half second for each of seven destinations"
        assert sum(sent.values()) <= 150, sent


async def _nothing(noted: Noted) -> None: ...


async def _is_empty(url: str) -> bool:
    return not await query(url, "SELECT 1 FROM postlude_delivery")
