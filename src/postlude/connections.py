"""URLs to adapters: which store, which broker, which handles. Drivers are imported only when they are named."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from postlude.brokers.memory import MemoryBroker
from postlude.enlist.aiosqlite import AiosqliteAdapter
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.errors import BadUrl, MissingExtra
from postlude.ports.broker import Broker
from postlude.ports.clock import Clock
from postlude.ports.enlist import Adapter
from postlude.ports.store import Store
from postlude.settings import Settings

DATABASES = "sqlite:///file.db, postgresql://user@host/database"


def open_store(url: str, settings: Settings, clock: Clock) -> Store:
    """The store of a database URL. Nothing is connected yet."""
    scheme = _scheme(url)
    if scheme == "sqlite":
        from postlude.storage.sqlite.store import SqliteStore

        return SqliteStore(_path(url), clock=clock)
    if scheme in ("postgresql", "postgres"):
        try:
            from postlude.storage.postgres.connection import PoolOptions
            from postlude.storage.postgres.store import PostgresStore
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise MissingExtra("PostgreSQL needs asyncpg", hint="pip install 'postlude[postgres]'") from error
        pool = PoolOptions(settings.pool.min, settings.pool.max, settings.pool.command_timeout)
        return PostgresStore(_plain(url), clock=clock, schema=settings.schema, pool=pool)
    raise BadUrl(f"{redacted(url)} is not a database Postlude knows", hint=f"Use {DATABASES}.")


def open_broker(url: str) -> Broker:
    """The broker of a URL. Nothing is connected yet."""
    if _scheme(url) == "memory":
        return MemoryBroker()
    raise BadUrl(f"{redacted(url)} is not a broker Postlude knows", hint="Use memory://.")


def adapters_of() -> Sequence[Adapter]:
    """Every handle we can join."""
    return (AsyncpgAdapter(), Sqlite3Adapter(), AiosqliteAdapter())


def redacted(url: str) -> str:
    """A URL that may be shown: without its password, nor anything in its query."""
    # By hand: a password that should have been escaped is no secret to a parser that splits inside it.
    scheme, found, rest = url.partition("://")
    if not found:
        return url.rpartition("@")[2]
    given, _, place = rest.rpartition("@")
    user = given.partition(":")[0]
    return f"{scheme}://{user}{'@' if user else ''}{place.partition('?')[0]}"


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found or not scheme:
        raise BadUrl(f"{redacted(url)!r} is not a URL", hint=f"Use {DATABASES}.")
    return scheme.partition("+")[0].lower()


def _plain(url: str) -> str:
    """A PostgreSQL URL without the driver that others put into it."""
    _, _, rest = url.partition("://")
    plain = f"postgresql://{rest}"
    try:
        port = urlsplit(plain).port
    except ValueError as error:
        raise BadUrl(f"the port in {redacted(url)} is not a number") from error
    if port == 0:
        raise BadUrl(f"{redacted(url)} has no usable port")
    return plain


def _path(url: str) -> str:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`; a query is not part of the name."""
    _, _, rest = url.partition("://")
    path = rest.partition("?")[0]
    if not path.startswith("/"):
        raise BadUrl(f"{redacted(url)!r} names a host, not a file", hint="Use three slashes: sqlite:///shop.db")
    return unquote(path.removeprefix("/"))
