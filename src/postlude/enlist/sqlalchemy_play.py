"""Our scripts on an SQLAlchemy Connection, in the placeholder style and the types of the driver below it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from postlude.core.statement import Call, Row, Script, Statement, Style
from postlude.enlist.faults import failed_transaction, meaning
from postlude.enlist.sqlalchemy_state import connection_of, is_closed, require_driver
from postlude.errors import ConfigurationError, ConnectionClosed, PostludeError

T = TypeVar("T")
STYLES: Mapping[str, Style] = {
    "asyncpg": "dollar",
    "psycopg": "pyformat",
    "psycopg2": "pyformat",
    "pysqlite": "named",
    "aiosqlite": "named",
}
UUID_OID = 2950


def play(handle: Any, script: Script[T]) -> T:
    """On the connection of a Session, or on a Connection."""
    from sqlalchemy.exc import SQLAlchemyError

    if is_closed(handle):
        raise ConnectionClosed("this SQLAlchemy handle is closed, or its connection is lost")
    try:
        connection = connection_of(handle)
        require_driver(connection)
        call = next(script)
        while True:
            call = script.send(_run(connection, call))
    except StopIteration as end:
        result: T = end.value
        return result
    except SQLAlchemyError as error:
        if (meant := _meaning(error)) is not None:
            raise meant from error
        raise


def _run(connection: Any, call: Call) -> list[Row]:
    driver = connection.dialect.driver
    if driver not in STYLES:
        raise ConfigurationError(
            f"SQLAlchemy's driver {driver} is not one Postlude can append through", hint=f"Use {', '.join(STYLES)}."
        )
    text, names = _compiled(call.statement, STYLES[driver])
    if driver == "asyncpg":
        result = connection.exec_driver_sql(text, tuple(call.values[name] for name in names))
    elif driver == "psycopg2":
        return _rows_of_psycopg2(
            connection.exec_driver_sql(text, {name: _adapted(call.values[name]) for name in names} or None)
        )
    else:
        result = connection.exec_driver_sql(text, {name: call.values[name] for name in names} or None)
    return result.fetchall() if result.returns_rows else []


def _adapted(value: Any) -> Any:
    """psycopg2 knows UUIDs only after a registration that would hold for the whole process."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list):
        return [str(one) if isinstance(one, UUID) else one for one in value]
    return value


def _rows_of_psycopg2(result: Any) -> list[Row]:
    if not result.returns_rows:
        return []
    uuids = [index for index, column in enumerate(result.cursor.description) if column[1] == UUID_OID]
    rows = [list(row) for row in result.fetchall()]
    for row in rows:
        for index in uuids:
            if isinstance(row[index], str):
                row[index] = UUID(row[index])
    return [tuple(row) for row in rows]


def _meaning(error: Any) -> PostludeError | None:
    from sqlalchemy.exc import PendingRollbackError, ResourceClosedError

    if isinstance(error, ResourceClosedError) or getattr(error, "connection_invalidated", False):
        return ConnectionClosed(f"this SQLAlchemy handle is closed, or its connection is lost: {error}")
    if isinstance(error, PendingRollbackError):
        return failed_transaction()
    return meaning(error)


@lru_cache(512)
def _compiled(statement: Statement, style: Style) -> tuple[str, tuple[str, ...]]:
    return statement.compile(style), statement.parameters
