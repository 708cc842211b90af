"""URLs to adapters: which store, which broker, which handles. Drivers are imported only when they are named."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from postlude.brokers.memory import MemoryBroker
from postlude.enlist.aiosqlite import AiosqliteAdapter
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.enlist.django import DjangoAdapter
from postlude.enlist.psycopg import AsyncPsycopgAdapter, PsycopgAdapter
from postlude.enlist.sqlalchemy import AsyncSqlalchemyAdapter, SqlalchemyAdapter
from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.errors import BadUrl
from postlude.ports.broker import Broker
from postlude.ports.clock import Clock
from postlude.ports.enlist import Adapter
from postlude.ports.store import Store
from postlude.redaction import redacted
from postlude.settings import Settings
from postlude.storage.postgres.urls import plain_url

DATABASES = "sqlite:///file.db, postgresql://user@host/database"


def open_store(url: str, settings: Settings, clock: Clock) -> Store:
    """The store of a database URL. Nothing is connected yet."""
    scheme = _scheme(url)
    if scheme == "sqlite":
        from postlude.storage.sqlite.store import SqliteStore

        return SqliteStore(_path(url), clock=clock)
    if scheme in ("postgresql", "postgres"):
        from postlude.storage.postgres.driver import PoolOptions
        from postlude.storage.postgres.store import PostgresStore

        pool = PoolOptions(settings.pool.min, settings.pool.max, settings.pool.command_timeout)
        driver = url.partition("://")[0].partition("+")[2].lower()
        return PostgresStore(plain_url(url), clock=clock, schema=settings.schema, pool=pool, driver=driver)
    raise BadUrl(f"{redacted(url)} is not a database Postlude knows", hint=f"Use {DATABASES}.")


def open_broker(url: str) -> Broker:
    """The broker of a URL. Nothing is connected yet."""
    if _scheme(url) == "memory":
        return MemoryBroker()
    raise BadUrl(f"{redacted(url)} is not a broker Postlude knows", hint="Use memory://.")


def adapters_of() -> Sequence[Adapter]:
    """Every handle we can join."""
    return (
        AsyncpgAdapter(),
        PsycopgAdapter(),
        AsyncPsycopgAdapter(),
        SqlalchemyAdapter(),
        AsyncSqlalchemyAdapter(),
        DjangoAdapter(),
        Sqlite3Adapter(),
        AiosqliteAdapter(),
    )


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found or not scheme:
        raise BadUrl(f"{redacted(url)!r} is not a URL", hint=f"Use {DATABASES}.")
    return scheme.partition("+")[0].lower()


def _path(url: str) -> str:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`; a query is not part of the name."""
    _, _, rest = url.partition("://")
    path = rest.partition("?")[0]
    if not path.startswith("/"):
        raise BadUrl(f"{redacted(url)!r} names a host, not a file", hint="Use three slashes: sqlite:///shop.db")
    return unquote(path.removeprefix("/"))
