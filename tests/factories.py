"""Every source of handlers' transactions that an app can be given, on every database."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from typing import Any, NamedTuple

import aiosqlite
import asyncpg
import psycopg
import psycopg_pool
import sqlalchemy
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from postlude.enlist.django import atomic
from tests.callers import engine_url
from tests.django_settings import databases

Make = Callable[[str, AsyncExitStack], Awaitable[Any]]


class Source(NamedTuple):
    """What stands in `transactions=`, and the handle that a handler gets from it."""

    given: str
    handle: str
    driver: str
    database: str
    is_async: bool
    make: Make

    @property
    def id(self) -> str:
        return f"{self.given}-{self.driver}-{self.database}".replace(" ", "-")


async def run(tx: Any, sql: str) -> None:
    """A statement on an async handle."""
    await tx.execute(sqlalchemy.text(sql) if _is_sqlalchemy(tx) else sql)


def run_now(tx: Any, sql: str) -> None:
    """The same on a sync one."""
    if type(tx).__module__.startswith("django"):
        with tx.cursor() as cursor:
            cursor.execute(sql)
    else:
        tx.execute(sqlalchemy.text(sql) if _is_sqlalchemy(tx) else sql)


def ending(tx: Any, word: str) -> Any:
    """COMMIT or ROLLBACK, in the way that each handle lets it happen; awaited where it is async."""
    by_method = _is_sqlalchemy(tx) or type(tx).__module__.split(".")[0] in ("aiosqlite", "sqlite3")
    return getattr(tx, word.lower())() if by_method else run(tx, word)


def ending_now(tx: Any, word: str) -> None:
    if _is_sqlalchemy(tx) or isinstance(tx, sqlite3.Connection):
        getattr(tx, word.lower())()
    else:
        run_now(tx, word)


def _is_sqlalchemy(tx: Any) -> bool:
    return type(tx).__module__.startswith("sqlalchemy")


# ---------------------------------------------------------------- one function for each


async def _own(url: str, stack: AsyncExitStack) -> Any:
    return None


async def _asyncpg_pool(url: str, stack: AsyncExitStack) -> Any:
    return await stack.enter_async_context(asyncpg.create_pool(url, min_size=1, max_size=2))


async def _psycopg_pool(url: str, stack: AsyncExitStack) -> Any:
    return stack.enter_context(psycopg_pool.ConnectionPool(url, min_size=1, max_size=2))


async def _async_psycopg_pool(url: str, stack: AsyncExitStack) -> Any:
    return await stack.enter_async_context(psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=2, open=False))


async def _sync_callable(url: str, stack: AsyncExitStack) -> Any:
    @contextmanager
    def transactions() -> Iterator[Any]:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT 1")  # begun by itself: a savepoint has to tell what the handler does
            yield connection

    return transactions


async def _async_callable(url: str, stack: AsyncExitStack) -> Any:
    @asynccontextmanager
    async def transactions() -> AsyncIterator[Any]:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    return transactions


async def _sqlite3_callable(url: str, stack: AsyncExitStack) -> Any:
    @contextmanager
    def transactions() -> Iterator[Any]:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            yield connection

    return transactions


async def _aiosqlite_callable(url: str, stack: AsyncExitStack) -> Any:
    @asynccontextmanager
    async def transactions() -> AsyncIterator[Any]:
        async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
            yield connection
            await connection.commit()

    return transactions


async def _django(url: str, stack: AsyncExitStack) -> Any:
    stack.enter_context(databases(default=url))
    return atomic()


def _engine(driver: str, wrap: Callable[[Any], Any]) -> Make:
    async def make(url: str, stack: AsyncExitStack) -> Any:
        engine = sqlalchemy.create_engine(engine_url(url, driver))
        stack.callback(engine.dispose)
        return wrap(engine)

    return make


def _async_engine(driver: str, wrap: Callable[[Any], Any]) -> Make:
    async def make(url: str, stack: AsyncExitStack) -> Any:
        engine = create_async_engine(engine_url(url, driver))
        stack.push_async_callback(engine.dispose)
        return wrap(engine)

    return make


def _same(engine: Any) -> Any:
    return engine


POSTGRES = [
    Source("nothing", "asyncpg connection", "asyncpg", "postgres", True, _own),
    Source("asyncpg pool", "asyncpg connection", "asyncpg", "postgres", True, _asyncpg_pool),
    Source("async callable", "asyncpg connection", "asyncpg", "postgres", True, _async_callable),
    Source("psycopg ConnectionPool", "psycopg Connection", "psycopg", "postgres", False, _psycopg_pool),
    Source("callable", "psycopg Connection", "psycopg", "postgres", False, _sync_callable),
    Source("psycopg AsyncConnectionPool", "psycopg AsyncConnection", "psycopg", "postgres", True, _async_psycopg_pool),
    Source("sessionmaker", "SQLAlchemy Session", "psycopg2", "postgres", False, _engine("psycopg2", sessionmaker)),
    Source("sessionmaker", "SQLAlchemy Session", "psycopg", "postgres", False, _engine("psycopg", sessionmaker)),
    Source("Engine", "SQLAlchemy Connection", "psycopg2", "postgres", False, _engine("psycopg2", _same)),
    Source("Engine", "SQLAlchemy Connection", "psycopg", "postgres", False, _engine("psycopg", _same)),
    Source("async_sessionmaker", "SQLAlchemy AsyncSession", "asyncpg", "postgres", True, _async_engine("asyncpg", async_sessionmaker)),
    Source("async_sessionmaker", "SQLAlchemy AsyncSession", "psycopg", "postgres", True, _async_engine("psycopg", async_sessionmaker)),
    Source("AsyncEngine", "SQLAlchemy AsyncConnection", "asyncpg", "postgres", True, _async_engine("asyncpg", _same)),
    Source("AsyncEngine", "SQLAlchemy AsyncConnection", "psycopg", "postgres", True, _async_engine("psycopg", _same)),
    Source("Django atomic()", "Django connection", "psycopg", "postgres", False, _django),
]  # fmt: skip
SQLITE = [
    Source("nothing", "sqlite3 Connection", "sqlite3", "sqlite", False, _own),
    Source("callable", "sqlite3 Connection", "sqlite3", "sqlite", False, _sqlite3_callable),
    Source("async callable", "aiosqlite Connection", "aiosqlite", "sqlite", True, _aiosqlite_callable),
    Source("sessionmaker", "SQLAlchemy Session", "sqlite3", "sqlite", False, _engine("pysqlite", sessionmaker)),
    Source("Engine", "SQLAlchemy Connection", "sqlite3", "sqlite", False, _engine("pysqlite", _same)),
    Source("async_sessionmaker", "SQLAlchemy AsyncSession", "aiosqlite", "sqlite", True, _async_engine("aiosqlite", async_sessionmaker)),
    Source("AsyncEngine", "SQLAlchemy AsyncConnection", "aiosqlite", "sqlite", True, _async_engine("aiosqlite", _same)),
    Source("Django atomic()", "Django connection", "sqlite3", "sqlite", False, _django),
]  # fmt: skip
SOURCES = POSTGRES + SQLITE
