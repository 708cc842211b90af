"""URLs to adapters: which store, which broker, which handles. Drivers are imported only when they are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

from postlude.brokers.memory import MemoryBroker
from postlude.enlist.aiosqlite import AiosqliteAdapter
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.enlist.django import DjangoAdapter
from postlude.enlist.psycopg import AsyncPsycopgAdapter, PsycopgAdapter
from postlude.enlist.sqlalchemy import AsyncSqlalchemyAdapter, SqlalchemyAdapter
from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.errors import BadUrl, ConfigurationError, MissingExtra
from postlude.ports.broker import Broker
from postlude.ports.clock import Clock
from postlude.ports.enlist import Adapter
from postlude.ports.store import Store
from postlude.secrecy import shown_url
from postlude.settings import Settings
from postlude.storage.postgres.urls import plain_url

DATABASES = "sqlite:///file.db, postgresql://user@host/database"
BROKERS = "memory://, kafka://host, amqp://user@host, redis://host, nats://host"

Adapt = Callable[[str, dict[str, Any]], Broker]
_IN_MEMORY: WeakValueDictionary[str, MemoryBroker] = WeakValueDictionary()
"""By name, for as long as an app has it."""


def open_store(url: str, settings: Settings, clock: Clock) -> Store:
    """The store of a database URL. Nothing is connected yet."""
    scheme = _scheme(url, DATABASES)
    if scheme == "sqlite":
        from postlude.storage.sqlite.store import SqliteStore

        return SqliteStore(_path(url), clock=clock)
    if scheme in ("postgresql", "postgres"):
        from postlude.storage.postgres.driver import PoolOptions
        from postlude.storage.postgres.store import PostgresStore

        pool = PoolOptions(settings.pool.min, settings.pool.max, settings.pool.command_timeout)
        driver = url.partition("://")[0].partition("+")[2].lower()
        return PostgresStore(plain_url(url), clock=clock, schema=settings.schema, pool=pool, driver=driver)
    raise BadUrl(f"{shown_url(url)} is not a database Postlude knows", hint=f"Use {DATABASES}.")


def open_broker(url: str, options: Mapping[str, Any] | None = None) -> Broker:
    """The broker of a URL. Nothing is connected yet. Options are the adapter's own and its client's."""
    scheme = _scheme(url, BROKERS)
    if scheme == "memory":
        _refuse_options(options)
        return _memory(url.partition("://")[2])
    if (opening := OPENINGS.get(scheme)) is None:
        raise BadUrl(f"{shown_url(url)} is not a broker Postlude knows", hint=f"Use {BROKERS}.")
    extra, module = opening
    try:
        adapter = module()
    except ImportError as error:
        if (error.name or "").startswith("postlude"):
            raise
        raise MissingExtra(f"{scheme}:// needs a client ({error})", hint=f"pip install 'postlude[{extra}]'") from error
    return adapter(url, dict(options or {}))


def _memory(name: str) -> MemoryBroker:
    """Apps that give the same name share one, as services share a broker."""
    if not name:
        return MemoryBroker()
    return _IN_MEMORY.setdefault(name, MemoryBroker())


def _refuse_options(options: Mapping[str, Any] | None) -> None:
    if options:
        raise ConfigurationError(
            f"memory:// takes no options, and was given {', '.join(sorted(options))}",
            hint="Remove brokers.NAME.options, or give the URL of a real broker.",
        )


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


def _scheme(url: str, known: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found or not scheme:
        raise BadUrl(f"{shown_url(url)!r} is not a URL", hint=f"Use {known}.")
    return scheme.partition("+")[0].lower()


def _path(url: str) -> str:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`; a query is not part of the name."""
    _, _, rest = url.partition("://")
    path = rest.partition("?")[0]
    if not path.startswith("/"):
        raise BadUrl(f"{shown_url(url)!r} names a host, not a file", hint="Use three slashes: sqlite:///shop.db")
    return unquote(path.removeprefix("/"))


def _kafka() -> Adapt:
    from postlude.brokers.kafka import KafkaBroker

    return KafkaBroker


def _rabbitmq() -> Adapt:
    from postlude.brokers.rabbitmq import RabbitmqBroker

    return RabbitmqBroker


def _redis() -> Adapt:
    from postlude.brokers.redis import RedisBroker

    return RedisBroker


def _nats() -> Adapt:
    from postlude.brokers.nats import NatsBroker

    return NatsBroker


OPENINGS: dict[str, tuple[str, Callable[[], Adapt]]] = {
    "kafka": ("kafka", _kafka),
    "amqp": ("rabbitmq", _rabbitmq),
    "amqps": ("rabbitmq", _rabbitmq),
    "redis": ("redis", _redis),
    "rediss": ("redis", _redis),
    "nats": ("nats", _nats),
    "tls": ("nats", _nats),
}
"""By scheme: the extra to install, and where the adapter is. An adapter is made of the URL and its options."""
