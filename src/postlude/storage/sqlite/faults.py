"""What SQLite's errors mean to us."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postlude.errors import DatabaseBusy, DatabaseUnavailable, PostludeError, SchemaMissing

_PRIMARY = 0xFF  # the low byte of an extended code is the plain one
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LOST = {
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "Check the path and the permissions of the file and its directory."),
    sqlite3.SQLITE_NOTADB: ("is not an SQLite database", "The path names some other file; choose another path."),
    sqlite3.SQLITE_READONLY: ("cannot be written", "Check the permissions of the file and of its directory."),
    sqlite3.SQLITE_FULL: ("has no room to grow", "The disk is full."),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "The disk or the file system reports an error."),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "Restore it from a backup, or try `sqlite3 FILE .recover`."),
    sqlite3.SQLITE_PERM: ("cannot be opened", "Check the permissions of the file and of its directory."),
}


def is_busy(error: sqlite3.Error) -> bool:
    """Somebody else is writing: it can be tried again."""
    return _code(error) in _BUSY


def is_lost(error: sqlite3.Error) -> bool:
    """The file is not what it was: the connection is of no use any more."""
    return _code(error) in _LOST


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Driver errors that have a meaning of ours; the original is the cause."""
    try:
        yield
    except sqlite3.Error as error:
        meant = _meaning(error, path)
        if meant is None:
            raise
        raise meant from error


def _meaning(error: sqlite3.Error, path: str) -> PostludeError | None:
    if is_busy(error):
        return DatabaseBusy(
            f"somebody else has been writing to {path} for too long",
            hint="Keep write transactions short, and await nothing slow inside them.",
        )
    if is_lost(error):
        return _unavailable(error, path)
    if "no such table: postlude_" in str(error):
        return SchemaMissing(f"the Postlude schema is not in {path}: {error}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return DatabaseUnavailable(f"the connection to {path} was closed", hint="Open the store again.")
    return None


def _unavailable(error: sqlite3.Error, path: str) -> DatabaseUnavailable:
    directory = Path(path).parent
    if not directory.is_dir():
        return DatabaseUnavailable(
            f"the directory {directory} does not exist", hint="Create it, or choose another path."
        )
    problem, hint = _LOST[_code(error)]
    return DatabaseUnavailable(f"{path} {problem}: {error}", hint=hint)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY  # the module's own errors have no code
