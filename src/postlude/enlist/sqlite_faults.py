"""What SQLite's errors on a caller's handle mean; for every driver that raises them."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from postlude.errors import ConnectionClosed, DatabaseBusy, PostludeError, SchemaMissing

_numbers = itertools.count(1)


def savepoint_name() -> str:
    return f"postlude_{next(_numbers)}"


@contextmanager
def translated() -> Iterator[None]:
    """Driver errors that have a meaning of ours; the original is the cause."""
    try:
        yield
    except sqlite3.Error as error:
        meant = _meaning(error)
        if meant is None:
            raise
        raise meant from error


def _meaning(error: sqlite3.Error) -> PostludeError | None:
    code = getattr(error, "sqlite_errorcode", 0)  # the module's own errors have no code
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return DatabaseBusy("this transaction began by reading, and somebody else has written since")
    if code & 0xFF == sqlite3.SQLITE_BUSY:
        return DatabaseBusy("somebody else is writing to this database")
    if "no such table: postlude_" in str(error):
        return SchemaMissing(f"the Postlude schema is not in this database: {error}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
        return ConnectionClosed("this connection is closed")
    return None
