"""`inbox.once` on the handles people have: an effect happens once, whatever is delivered again."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude import ConfigurationError, InvalidId, NotInTransaction
from tests.engine import connect, held, make_app, query


async def consume(app: Any, event_id: UUID | str, **options: Any) -> bool:
    """What a user's own consumer does."""
    async with app.transaction() as tx:
        return bool(await app.inbox.once(tx, "billing", event_id, **options))


async def test_a_message_that_comes_again_is_known(database_url: str) -> None:
    async with make_app(database_url) as app:
        one = uuid4()
        assert await consume(app, one)
        assert not await consume(app, str(one))
        assert not await consume(app, str(one).upper())


async def test_a_foreign_id_belongs_to_its_source(database_url: str) -> None:
    async with make_app(database_url) as app:
        assert await consume(app, "42", source="shop")
        assert not await consume(app, "42", source="shop")
        assert await consume(app, "42", source="warehouse")
        assert await consume(app, "142", source="shop")


async def test_what_cannot_be_told_apart_is_refused(database_url: str) -> None:
    async with make_app(database_url) as app:
        with pytest.raises(InvalidId, match="no UUID") as refused:
            await consume(app, "42")
        assert "source=" in str(refused.value.hint)
        with pytest.raises(InvalidId):
            await consume(app, "", source="shop")
        async with app.transaction() as tx:
            with pytest.raises(ConfigurationError, match="needs a name"):
                await app.inbox.once(tx, "", uuid4())


async def test_it_needs_a_transaction(any_postgres_url: str) -> None:
    async with make_app(any_postgres_url) as app:
        connection = await connect(any_postgres_url)
        with pytest.raises(NotInTransaction):
            await app.inbox.once(connection, "billing", uuid4())
        await connection.close()


async def test_two_that_consume_the_same_at_once_have_one_effect(any_postgres_url: str) -> None:
    """The second waits for the first, and is the first when that one is rolled back."""
    async with make_app(any_postgres_url) as app:
        for ends, expected in (("commit", False), ("rollback", True)):
            one = uuid4()
            async with held(any_postgres_url) as first:
                assert await app.inbox.once(first.connection, "billing", one)
                second = asyncio.create_task(consume(app, one))
                waiting = (
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%inbox%'"
                    " AND datname = current_database()"
                )
                while (await query(any_postgres_url, waiting))[0][0] == 0:
                    await asyncio.sleep(0.01)
                await getattr(first, ends)()
                assert await second is expected


def test_it_works_without_an_event_loop(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    app.sync.start()
    one = uuid4()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        with connection:
            assert app.sync.inbox.once(connection, "billing", one)
        with connection:
            assert not app.sync.inbox.once(connection, "billing", one)


async def test_retention_forgets_what_is_over_its_time(database_url: str) -> None:
    async with make_app(database_url) as app:
        one = uuid4()
        await consume(app, one)
        await app.maintenance.run("retention")
        assert not await consume(app, one)
        app.clock.ahead = 721 * 3600.0
        await app.maintenance.run("retention")
        assert await consume(app, one)
