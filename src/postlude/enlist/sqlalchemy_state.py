"""What SQLAlchemy knows of a Session or Connection without asking the database."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from postlude.enlist.faults import failed_transaction, prepared_transaction
from postlude.errors import ConfigurationError, ConnectionClosed, NotInTransaction

DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite"}


def is_connection(handle: Any) -> bool:
    return hasattr(handle, "exec_driver_sql")


def dialect(handle: Any) -> str:
    name = (handle.engine if is_connection(handle) else _bind(handle)).dialect.name
    if name not in DIALECTS:
        raise ConfigurationError(f"an SQLAlchemy handle on {name} cannot be joined", hint="Use PostgreSQL or SQLite.")
    return DIALECTS[name]


def is_closed(handle: Any) -> bool:
    if is_connection(handle):
        # An AsyncConnection that nobody awaited yet is not open either.
        never_opened = getattr(handle, "sync_connection", handle) is None
        return never_opened or bool(handle.closed or handle.invalidated)
    return getattr(getattr(handle, "_close_state", None), "name", "") == "CLOSED"  # for good: close_resets_only=False


def require(handle: Any) -> None:
    """Refuse what is closed, has failed, or commits by itself."""
    if is_closed(handle):
        raise ConnectionClosed("this SQLAlchemy handle is closed, or its connection is lost")
    if is_connection(handle):
        begun = handle.get_transaction()
        if begun is not None and not begun.is_active:
            raise failed_transaction()
        _refuse_autocommit(handle)
        return
    if not handle.is_active:
        begun = handle.get_transaction()
        is_prepared = getattr(getattr(begun, "_state", None), "name", "") == "PREPARED"
        raise prepared_transaction() if is_prepared else failed_transaction()
    if not handle.in_transaction() and not getattr(handle, "autobegin", True):
        raise NotInTransaction(
            "this session was made with autobegin=False and is in no transaction",
            hint="Append inside `with session.begin():`.",
        )
    _refuse_autocommit(_bind(handle))


def connection_of(handle: Any) -> Any:
    """The Connection that the handle's next statement would run on, in a transaction."""
    if not is_connection(handle):
        return handle.connection()
    if not handle.in_transaction():
        handle.begin()  # as its next statement would
    return handle


def require_driver(connection: Any) -> None:
    """The driver's own word counts: connect_args or an event may have put it into autocommit."""
    lent = connection.connection
    if connection.dialect.name == "sqlite":
        driver = lent.driver_connection
        mode = getattr(driver, "autocommit", -1)  # Python 3.12 and later
        by_itself = mode is True or (mode is not False and driver.isolation_level is None)
        autocommits = by_itself and not driver.in_transaction
    else:
        autocommits = bool(getattr(lent.dbapi_connection, "autocommit", False))
    if autocommits:
        raise _autocommit()


def begin_nested(handle: Any) -> Any:
    connection = connection_of(handle)
    if connection.dialect.name == "sqlite" and not connection.connection.driver_connection.in_transaction:
        connection.exec_driver_sql("BEGIN")  # else RELEASE would commit
    return handle.begin_nested()


def undo(nested: Any) -> None:
    with suppress(Exception):  # what went wrong matters more
        if nested.is_active:
            nested.rollback()


def _bind(session: Any) -> Any:
    from sqlalchemy.exc import UnboundExecutionError

    try:
        return session.get_bind()
    except UnboundExecutionError as error:
        raise ConfigurationError(
            "this session is bound to no engine by default, so it is not clear which database is meant",
            hint="Give Session(bind=...) besides its binds, or append on session.connection(bind_arguments={...}).",
        ) from error


def _refuse_autocommit(bind: Any) -> None:
    level = bind.get_execution_options().get("isolation_level")
    if level is None:
        level = getattr(bind.dialect, "_on_connect_isolation_level", None)
    if str(level).upper() == "AUTOCOMMIT":
        raise _autocommit()


def _autocommit() -> NotInTransaction:
    return NotInTransaction(
        "this SQLAlchemy handle is in AUTOCOMMIT",
        hint='Append on one that is not: without isolation_level="AUTOCOMMIT" on engine, connection or options.',
    )
