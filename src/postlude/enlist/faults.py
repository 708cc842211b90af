"""What a database's errors on a caller's handle mean, whichever driver raises them and whoever wraps them."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from postlude.core.sqlstate import sqlstate_of, wrapped
from postlude.errors import (
    ConnectionClosed,
    DatabaseBusy,
    DatabaseUnavailable,
    NotInTransaction,
    PostludeError,
    SchemaMissing,
)

UNDEFINED_TABLE = "42P01"
FAILED_TRANSACTION = "25P02"
NOTHING_TO_RELEASE = ("3B001", "25P01")
"""No such savepoint, no transaction."""
LOST_STATEMENT = ("26000", "42P05")
"""A prepared statement that is not there, or that is there already: the session is not the one it was."""
THROUGH_A_POOLER = (
    "hint: This handle keeps prepared statements and goes through a pooler such as PgBouncer. Turn them off where you"
    " connect: statement_cache_size=0 (asyncpg), prepare_threshold=None (psycopg)."
)
_numbers = itertools.count(1)


def savepoint_name() -> str:
    return f"postlude_{next(_numbers)}"


@contextmanager
def translated() -> Iterator[None]:
    """Driver errors that have a meaning of ours; the original is the cause."""
    try:
        yield
    except PostludeError:
        raise
    except Exception as error:
        meant = meaning(error)
        if meant is None:
            raise
        raise meant from error


def meaning(error: BaseException) -> PostludeError | None:
    """Of an error that a statement of ours has met."""
    for one in wrapped(error):
        if isinstance(one, sqlite3.Error):
            return _meaning_on_sqlite(one)
    code = sqlstate_of(error)
    if code == UNDEFINED_TABLE:
        return SchemaMissing(f"the Postlude schema is not there: {error}")
    if code == FAILED_TRANSACTION:
        return failed_transaction()
    if code in LOST_STATEMENT:
        error.add_note(THROUGH_A_POOLER)
    return None


def failed_transaction() -> NotInTransaction:
    return NotInTransaction(
        "this transaction has failed: an earlier statement in it raised, and nothing more can be written",
        hint="Roll it back, or let the error end its block, and append in a new transaction.",
    )


def prepared_transaction() -> NotInTransaction:
    return NotInTransaction(
        "this transaction is prepared: nothing more can be written in it",
        hint="Append before the first phase of the commit; it commits with the second.",
    )


def has_ended(error: BaseException) -> bool:
    """Does a RELEASE say so?"""
    if sqlstate_of(error) in NOTHING_TO_RELEASE:
        return True
    return any(isinstance(one, sqlite3.Error) and "no such savepoint" in str(one) for one in wrapped(error))


def _meaning_on_sqlite(error: sqlite3.Error) -> PostludeError | None:
    code = getattr(error, "sqlite_errorcode", 0)  # the module's own errors have no code
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return DatabaseBusy("this transaction began by reading, and somebody else has written since")
    if code & 0xFF == sqlite3.SQLITE_BUSY:
        return DatabaseBusy("somebody else is writing to this database")
    if code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
        return DatabaseUnavailable(f"this database cannot be read or written: {error}")
    if "no such table: postlude_" in str(error):
        return SchemaMissing(f"the Postlude schema is not in this database: {error}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
        return ConnectionClosed("this connection is closed")
    return None
