"""Every kind of handle that a caller may bring: how its users open it, begin, nest, commit and close."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiosqlite
import asyncpg
import psycopg
import sqlalchemy
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker

from postlude.enlist.aiosqlite import AiosqliteAdapter
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.enlist.django import DjangoAdapter
from postlude.enlist.psycopg import AsyncPsycopgAdapter, PsycopgAdapter
from postlude.enlist.sqlalchemy import AsyncSqlalchemyAdapter, SqlalchemyAdapter
from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.ports.enlist import Adapter
from tests.django_settings import databases, forget

FAILS = "SELECT 1 / 0"
BUSY = 0.05


async def _finished(done: Any) -> Any:
    """Sync handles answer at once, async ones are awaited."""
    return await done if hasattr(done, "__await__") else done


class Callers:
    """Of handles with `commit`, `rollback` and `close`; kinds that differ say how."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = url.removeprefix("sqlite:///")
        self._undo = contextlib.AsyncExitStack()

    async def open(self) -> Any:
        raise NotImplementedError

    async def autocommit(self) -> Any:
        raise NotImplementedError

    async def begin(self, handle: Any) -> None:
        await _finished(handle.execute("BEGIN IMMEDIATE" if self.url.startswith("sqlite") else "BEGIN"))

    async def commit(self, handle: Any) -> None:
        await _finished(handle.commit())

    async def rollback(self, handle: Any) -> None:
        await _finished(handle.rollback())

    async def close(self, handle: Any) -> None:
        await _finished(handle.close())

    async def break_out(self, handle: Any) -> None:
        await self.commit(handle)
        await self.begin(handle)

    async def fail(self, handle: Any) -> None:
        with contextlib.suppress(Exception):
            await self.run(handle, FAILS)

    async def run(self, handle: Any, sql: str) -> None:
        await _finished(handle.execute(sql))

    @asynccontextmanager
    async def nested(self, handle: Any) -> AsyncIterator[None]:
        """Written out, where a driver has no word for it."""
        await self.run(handle, "SAVEPOINT mine")
        try:
            yield
        except BaseException:
            await self.run(handle, "ROLLBACK TO mine")
            await self.run(handle, "RELEASE mine")
            raise
        await self.run(handle, "RELEASE mine")

    def kept(self, handle: Any, close: Callable[[], Any] | None = None) -> Any:
        """Closed at the end of the test, by whatever is given or by its own method."""

        async def end() -> None:
            await _finished((close or handle.close)())

        self._undo.push_async_callback(end)
        return handle

    async def end(self) -> None:
        await self._undo.aclose()


class AsyncpgCallers(Callers):
    async def open(self) -> Any:
        return self.kept(await asyncpg.connect(self.url))

    autocommit = open

    async def commit(self, handle: Any) -> None:
        await handle.execute("COMMIT")

    async def rollback(self, handle: Any) -> None:
        await handle.execute("ROLLBACK")

    @asynccontextmanager
    async def nested(self, handle: Any) -> AsyncIterator[None]:
        # Its own nested blocks want a transaction that was not begun by hand.
        async with super().nested(handle):
            yield


class PsycopgCallers(Callers):
    async def open(self) -> Any:
        return self.kept(psycopg.connect(self.url))

    async def autocommit(self) -> Any:
        return self.kept(psycopg.connect(self.url, autocommit=True))

    async def begin(self, handle: Any) -> None:
        """It begins by itself."""

    @asynccontextmanager
    async def nested(self, handle: Any) -> AsyncIterator[None]:
        with handle.transaction():
            yield


class AsyncPsycopgCallers(PsycopgCallers):
    async def open(self) -> Any:
        return self.kept(await psycopg.AsyncConnection.connect(self.url))

    async def autocommit(self) -> Any:
        return self.kept(await psycopg.AsyncConnection.connect(self.url, autocommit=True))

    @asynccontextmanager
    async def nested(self, handle: Any) -> AsyncIterator[None]:
        async with handle.transaction():
            yield


class Sqlite3Callers(Callers):
    async def open(self) -> Any:
        return self.kept(sqlite3.connect(self.path, timeout=BUSY))

    async def autocommit(self) -> Any:
        return self.kept(sqlite3.connect(self.path, timeout=BUSY, isolation_level=None))


class AiosqliteCallers(Callers):
    async def open(self) -> Any:
        return self.kept(await aiosqlite.connect(self.path, timeout=BUSY))

    async def autocommit(self) -> Any:
        return self.kept(await aiosqlite.connect(self.path, timeout=BUSY, isolation_level=None))


def engine_url(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


class SqlalchemyCallers(Callers):
    driver = ""
    """Of the engine; subclasses are made for each."""
    scoped = False

    def engine(self, **options: Any) -> Any:
        engine = sqlalchemy.create_engine(engine_url(self.url, self.driver), **options)
        return self.kept(engine, engine.dispose)

    async def begin(self, handle: Any) -> None:
        await _finished(handle.begin())

    async def run(self, handle: Any, sql: str) -> None:
        await _finished(handle.execute(sqlalchemy.text(sql)))

    @asynccontextmanager
    async def nested(self, handle: Any) -> AsyncIterator[None]:
        with handle.begin_nested():
            yield


class ConnectionCallers(SqlalchemyCallers):
    async def open(self) -> Any:
        return self.kept(self.engine().connect())

    async def autocommit(self) -> Any:
        return self.kept(self.engine().connect().execution_options(isolation_level="AUTOCOMMIT"))


class SessionCallers(SqlalchemyCallers):
    async def open(self) -> Any:
        return self._session(self.engine())

    async def autocommit(self) -> Any:
        return self._session(self.engine().execution_options(isolation_level="AUTOCOMMIT"))

    def _session(self, engine: Any) -> Any:
        made = sessionmaker(engine, close_resets_only=False)
        return self.kept(scoped_session(made) if self.scoped else made())

    async def close(self, handle: Any) -> None:
        # A scope gives a new session after close(); its old one is what may be in somebody's hands.
        await _finished((handle() if self.scoped else handle).close())


class AsyncSqlalchemyCallers(SqlalchemyCallers):
    def engine(self, **options: Any) -> Any:
        engine = create_async_engine(engine_url(self.url, self.driver), **options)
        return self.kept(engine, engine.dispose)

    @asynccontextmanager
    async def nested(self, handle: Any) -> AsyncIterator[None]:
        async with handle.begin_nested():
            yield


class AsyncConnectionCallers(AsyncSqlalchemyCallers):
    async def open(self) -> Any:
        return self.kept(await self.engine().connect())

    async def autocommit(self) -> Any:
        connection = await self.engine(isolation_level="AUTOCOMMIT").connect()
        return self.kept(connection)


class AsyncSessionCallers(AsyncSqlalchemyCallers):
    async def open(self) -> Any:
        return self._session(self.engine())

    async def autocommit(self) -> Any:
        return self._session(self.engine().execution_options(isolation_level="AUTOCOMMIT"))

    def _session(self, engine: Any) -> Any:
        made = async_sessionmaker(engine, close_resets_only=False)
        return self.kept(async_scoped_session(made, scopefunc=lambda: 1) if self.scoped else made())

    async def close(self, handle: Any) -> None:
        await (handle() if self.scoped else handle).close()


class DjangoCallers(Callers):
    """One connection for each thread and alias; a block is entered and left by hand."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._undo.enter_context(databases(default=url))
        self._blocks: list[Any] = []

    async def open(self) -> Any:
        handle = connections[DEFAULT_DB_ALIAS]
        handle.ensure_connection()
        return self.kept(handle, lambda: forget(handle))

    autocommit = open

    async def begin(self, handle: Any) -> None:
        self._blocks.append(transaction.atomic())
        self._blocks[-1].__enter__()

    async def commit(self, handle: Any) -> None:
        self._blocks.pop().__exit__(None, None, None)

    async def rollback(self, handle: Any) -> None:
        error = RuntimeError()
        self._blocks.pop().__exit__(RuntimeError, error, None)

    async def close(self, handle: Any) -> None:
        await self.begin(handle)
        handle.close()

    async def run(self, handle: Any, sql: str) -> None:
        with handle.cursor() as cursor:
            cursor.execute(sql)

    async def break_out(self, handle: Any) -> None:
        await self.run(handle, "COMMIT")  # Django refuses its own commit() inside a block
        await self.run(handle, "BEGIN" if handle.vendor == "sqlite" else "SELECT 1")

    async def fail(self, handle: Any) -> None:
        with contextlib.suppress(Exception), transaction.atomic(savepoint=False):
            await self.run(handle, FAILS)

    @asynccontextmanager
    async def nested(self, handle: Any) -> AsyncIterator[None]:
        with transaction.atomic():
            yield


class Kind(NamedTuple):
    """A handle on a database, as the matrix of the documentation calls it."""

    handle: str
    driver: str
    database: str
    adapter: Callable[[], Adapter]
    callers: Callable[[str], Callers]

    @property
    def id(self) -> str:
        return f"{self.handle}-{self.driver}-{self.database}".replace(" ", "-")


def _on(callers: type[SqlalchemyCallers], driver: str, scoped: bool = False) -> Callable[[str], Callers]:
    return type(callers.__name__, (callers,), {"driver": driver, "scoped": scoped})


def _sqlalchemy(database: str, drivers: tuple[str, ...], async_drivers: tuple[str, ...]) -> list[Kind]:
    kinds = []
    for driver in drivers:
        name = "sqlite3" if driver == "pysqlite" else driver
        kinds += [
            Kind("SQLAlchemy Session", name, database, SqlalchemyAdapter, _on(SessionCallers, driver)),
            Kind("SQLAlchemy Connection", name, database, SqlalchemyAdapter, _on(ConnectionCallers, driver)),
        ]
    kinds.append(
        Kind("SQLAlchemy scoped_session", name, database, SqlalchemyAdapter, _on(SessionCallers, driver, scoped=True))
    )
    for driver in async_drivers:
        kinds += [
            Kind("SQLAlchemy AsyncSession", driver, database, AsyncSqlalchemyAdapter, _on(AsyncSessionCallers, driver)),
            Kind(
                "SQLAlchemy AsyncConnection",
                driver,
                database,
                AsyncSqlalchemyAdapter,
                _on(AsyncConnectionCallers, driver),
            ),
        ]
    callers = _on(AsyncSessionCallers, driver, scoped=True)
    return [*kinds, Kind("SQLAlchemy async_scoped_session", driver, database, AsyncSqlalchemyAdapter, callers)]


KINDS = [
    Kind("asyncpg connection", "asyncpg", "postgres", AsyncpgAdapter, AsyncpgCallers),
    Kind("psycopg Connection", "psycopg", "postgres", PsycopgAdapter, PsycopgCallers),
    Kind("psycopg AsyncConnection", "psycopg", "postgres", AsyncPsycopgAdapter, AsyncPsycopgCallers),
    *_sqlalchemy("postgres", ("psycopg2", "psycopg"), ("psycopg", "asyncpg")),
    Kind("Django connection", "psycopg", "postgres", DjangoAdapter, DjangoCallers),
    Kind("sqlite3 Connection", "sqlite3", "sqlite", Sqlite3Adapter, Sqlite3Callers),
    Kind("aiosqlite Connection", "aiosqlite", "sqlite", AiosqliteAdapter, AiosqliteCallers),
    *_sqlalchemy("sqlite", ("pysqlite",), ("aiosqlite",)),
    Kind("Django connection", "sqlite3", "sqlite", DjangoAdapter, DjangoCallers),
]
