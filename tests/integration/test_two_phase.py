"""Two-phase commit is honoured: what was appended goes with the second phase, whoever drives it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, sessionmaker

from postlude import Context, NotInTransaction, Ok, Postlude
from tests.callers import engine_url
from tests.engine import Noted, make_app, note, published, query, routed_app

Prepare = Callable[[], Any]
PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE database"


@pytest.fixture
def url(any_postgres_url: str) -> Iterator[str]:
    """Whatever a test that failed has left prepared would keep the database from being dropped."""
    yield any_postgres_url
    with psycopg.connect(any_postgres_url, autocommit=True) as connection:
        for (name,) in connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
            connection.execute(f"ROLLBACK PREPARED '{name}'")


async def _now(done: Any) -> None:
    if hasattr(done, "__await__"):
        await done


@asynccontextmanager
async def on_psycopg(url: str) -> AsyncIterator[tuple[Any, Prepare, Prepare, Prepare]]:
    with psycopg.connect(url) as connection:
        connection.tpc_begin(connection.xid(1, uuid4().hex, "shop"))
        yield connection, connection.tpc_prepare, connection.tpc_commit, connection.tpc_rollback


@asynccontextmanager
async def on_async_psycopg(url: str) -> AsyncIterator[tuple[Any, Prepare, Prepare, Prepare]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.tpc_begin(connection.xid(1, uuid4().hex, "shop"))
        yield connection, connection.tpc_prepare, connection.tpc_commit, connection.tpc_rollback


@asynccontextmanager
async def on_asyncpg(url: str) -> AsyncIterator[tuple[Any, Prepare, Prepare, Prepare]]:
    connection, name = await asyncpg.connect(url), uuid4().hex

    def say(words: str) -> Prepare:
        return lambda: connection.execute(f"{words} '{name}'")

    await connection.execute("BEGIN")
    yield connection, say("PREPARE TRANSACTION"), say("COMMIT PREPARED"), say("ROLLBACK PREPARED")
    await connection.close()


@asynccontextmanager
async def on_a_session(url: str) -> AsyncIterator[tuple[Any, Prepare, Prepare, Prepare]]:
    engine = sqlalchemy.create_engine(engine_url(url, "psycopg2"))
    with contextlib.closing(Session(engine, twophase=True)) as session:
        yield session, session.prepare, session.commit, session.rollback
    engine.dispose()


@asynccontextmanager
async def on_a_connection(url: str) -> AsyncIterator[tuple[Any, Prepare, Prepare, Prepare]]:
    engine = sqlalchemy.create_engine(engine_url(url, "psycopg"))
    with engine.connect() as connection:
        begun = connection.begin_twophase()
        yield connection, begun.prepare, begun.commit, begun.rollback
    engine.dispose()


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls-back"])
@pytest.mark.parametrize("on", [on_psycopg, on_async_psycopg, on_asyncpg, on_a_session, on_a_connection])
async def test_the_second_phase_decides(
    url: str, on: Callable[[str], AbstractAsyncContextManager[Any]], commits: bool
) -> None:
    async with routed_app(url) as app, on(url) as (handle, prepare, commit, rollback):
        await app.outbox.append(handle, Noted(key="late", n=1))
        await _now(prepare())
        assert await query(url, f"{PREPARED} = current_database()") == [(1,)]
        await note(app, "other", 2)
        await app.run_once()
        assert published(app, "late") == []
        await _now((commit if commits else rollback)())
        await note(app, "other", 3)
        await app.drain()
        assert published(app, "other") == [2, 3]
        assert published(app, "late") == ([1] if commits else [])


@pytest.mark.parametrize("on", [on_psycopg, on_asyncpg, on_a_session])
async def test_nothing_is_appended_after_the_first_phase(
    url: str, on: Callable[[str], AbstractAsyncContextManager[Any]]
) -> None:
    async with routed_app(url) as app, on(url) as (handle, prepare, commit, _):
        await app.outbox.append(handle, Noted(key="late", n=1))
        await _now(prepare())
        with pytest.raises(NotInTransaction):
            await app.outbox.append(handle, Noted(key="late", n=2))
        await _now(commit())
        await app.drain()
        assert published(app) == [1]


async def test_handlers_in_two_phase_sessions(url: str) -> None:
    await query(url, "CREATE TABLE effect (n int)")
    engine = sqlalchemy.create_engine(engine_url(url, "psycopg2"))
    plain = make_app(url)
    app = Postlude(url, broker="memory://", transactions=sessionmaker(engine, twophase=True), settings=plain.settings)
    app.clock = plain.clock
    app.route(Noted)

    @app.on(Noted, name="handler")
    def handle(noted: Noted, ctx: Context) -> Ok[None]:
        ctx.tx.execute(sqlalchemy.text("INSERT INTO effect VALUES (1)"))
        return Ok(None)

    async with app:
        await note(app, "a", 1)
        await app.drain()
        assert await query(url, "SELECT n FROM effect") == [(1,)]
        assert set((await app.insight.counts()).values()) == {0}
    engine.dispose()
