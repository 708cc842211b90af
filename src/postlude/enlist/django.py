"""Django's database connections. Django is never imported before one of them was given, or a function here is called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from postlude.core.statement import Row, Script, Statement
from postlude.enlist.faults import failed_transaction, has_ended, translated
from postlude.errors import ConfigurationError, ConnectionClosed, NotInTransaction
from postlude.ports.enlist import Ended

T = TypeVar("T")
DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite"}


class DjangoAdapter:
    """For `django.db.connection` and `django.db.connections[alias]`, of whichever thread they are asked in."""

    is_async = False

    def dialect(self, handle: Any) -> str:
        if handle.vendor not in DIALECTS:
            raise ConfigurationError(
                f"Django's database {handle.alias!r} is on {handle.vendor}, which cannot be joined",
                hint="Use PostgreSQL or SQLite.",
            )
        return DIALECTS[handle.vendor]

    def fits(self, handle: object) -> bool:
        return any(
            f"{cls.__module__}.{cls.__name__}"
            in ("django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy")
            for cls in type(handle).__mro__
        )

    def require_transaction(self, handle: Any) -> None:
        if handle.closed_in_transaction or (handle.in_atomic_block and handle.connection is None):
            raise ConnectionClosed(f"Django's connection {handle.alias!r} was closed inside atomic()")
        if handle.in_atomic_block:
            if handle.needs_rollback:
                raise failed_transaction()
        elif handle.connection is None:
            raise NotInTransaction(f"Django's connection {handle.alias!r} is not open", hint=_hint(handle))
        elif handle.get_autocommit():
            raise NotInTransaction(f"Django's connection {handle.alias!r} is in autocommit", hint=_hint(handle))

    async def play(self, handle: Any, script: Script[T]) -> T:
        with _meant(handle), handle.cursor() as cursor:
            try:
                call = next(script)
                while True:
                    text, names = _compiled(call.statement)
                    cursor.execute(text, {name: call.values[name] for name in names})
                    call = script.send(_rows(cursor))
            except StopIteration as end:
                result: T = end.value
                return result

    @asynccontextmanager
    async def savepoint(self, handle: Any) -> AsyncIterator[None]:
        # Django's own: callbacks of on_commit and broken blocks are its to look after.
        from django.db import transaction

        block = transaction.atomic(using=handle.alias)
        block.__enter__()
        try:
            yield
        except BaseException as error:
            block.__exit__(type(error), error, error.__traceback__)
            raise
        try:
            block.__exit__(None, None, None)
        except Exception as error:
            if has_ended(error):
                raise Ended from error
            raise

    def is_closed(self, handle: Any) -> bool:
        return bool(handle.closed_in_transaction or handle.connection is None or _is_lost(handle.connection))

    def is_in_transaction(self, handle: Any) -> bool:
        if self.is_closed(handle) or handle.needs_rollback:
            return False
        if handle.vendor == "sqlite":
            return bool(handle.connection.in_transaction)
        return bool(handle.connection.info.transaction_status)

    def mark(self, handle: Any) -> object | None:
        found: object = handle.atomic_blocks[0] if handle.atomic_blocks else None
        return found


def atomic(using: str = "default") -> Callable[[], AbstractContextManager[Any]]:
    """For `Postlude(transactions=atomic())`: handlers run inside `transaction.atomic()`, each on its own thread's
    connection. They are plain functions: Django's connections belong to no event loop."""
    _set_up()
    return lambda: _in_atomic(using)


@contextmanager
def _in_atomic(using: str) -> Iterator[Any]:
    _require_thread()
    from django.db import close_old_connections, connections, transaction

    close_old_connections()  # as Django does around a request
    try:
        with transaction.atomic(using=using):
            yield connections[using]
    finally:
        close_old_connections()


def database_url(alias: str = "default") -> str:
    """The URL of a database of Django's settings, for `Postlude(database_url())`."""
    _set_up()
    from django.db import connections

    wrapper = connections[alias]
    given = wrapper.settings_dict
    name = str(given["NAME"] or "")
    if wrapper.vendor == "sqlite":
        if ":memory:" in name or "mode=memory" in name:
            raise ConfigurationError(
                f"Django's database {alias!r} lives in memory, where no worker can reach it",
                hint='Give DATABASES a file as NAME, and for tests "TEST": {"NAME": "test.db"}.',
            )
        return f"sqlite:///{quote(name)}"
    if wrapper.vendor != "postgresql" or not name:
        raise ConfigurationError(
            f"Django's database {alias!r} cannot be written as a URL", hint="Give Postlude the URL itself."
        )
    return _postgresql_url(given, name)


def _set_up() -> None:
    """`postlude run` imports the module of the app, and nobody has called django.setup() there yet."""
    import django
    from django.apps import apps

    if not apps.ready and not apps.loading:
        django.setup()


def _postgresql_url(given: Any, name: str) -> str:
    user = quote(given["USER"] or "", safe="")
    if user and given["PASSWORD"]:
        user += ":" + quote(given["PASSWORD"], safe="")
    host, query = str(given["HOST"] or ""), {}
    if host.startswith("/"):  # a folder of sockets
        host, query = "", {"host": host}
    if ":" in host:
        host = f"[{host}]"
    place = f"{host}:{given['PORT']}" if given["PORT"] and host else host
    if given["PORT"] and not host:
        query["port"] = str(given["PORT"])
    options = given.get("OPTIONS", {})
    query |= {key: str(options[key]) for key in ("sslmode", "sslrootcert", "sslcert", "sslkey") if key in options}
    return f"postgresql://{user}{'@' if user else ''}{place}/{quote(name, safe='')}{'?' if query else ''}{urlencode(query)}"


def _require_thread() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "Django's connections belong to threads, and this handler is async",
        hint="Write it as `def`: it runs in a thread. For async code around a call, use transactional=False.",
    )


def _rows(cursor: Any) -> list[Row]:
    return [tuple(row) for row in cursor.fetchall()] if cursor.description is not None else []


@contextmanager
def _meant(handle: Any) -> Iterator[None]:
    from django.db import Error
    from django.db.transaction import TransactionManagementError

    try:
        with translated():
            yield
    except TransactionManagementError as error:
        raise failed_transaction() from error
    except Error as error:
        if handle.connection is None or _is_lost(handle.connection):
            raise ConnectionClosed(f"Django's connection {handle.alias!r} is closed: {error}") from error
        raise


def _is_lost(connection: Any) -> bool:
    """By its driver; SQLite's are never lost."""
    return bool(getattr(connection, "closed", False))


def _hint(handle: Any) -> str:
    named = "" if handle.alias == "default" else f"using={handle.alias!r}"
    return f"Append inside `with transaction.atomic({named}):`."


@lru_cache(512)
def _compiled(statement: Statement) -> tuple[str, tuple[str, ...]]:
    return statement.compile("pyformat"), statement.parameters
