"""Connections to one SQLite file, set up the way the engine needs them."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from postlude.errors import BadUrl, DatabaseUnavailable

C = TypeVar("C", bound=sqlite3.Connection)

# How often a running statement of a lent connection looks whether it was taken away: about every millisecond.
_LOOK_EVERY = 100_000


def require_file(path: str) -> None:
    """Refuse databases that live in memory: no second connection could see them."""
    if not path or ":memory:" in path or "mode=memory" in path:
        raise BadUrl(
            "an SQLite database in memory cannot hold an outbox",
            hint="Name a file, such as sqlite:///app.db; in tests, one in a temporary directory.",
        )


def connect(path: str, kind: type[C]) -> C:
    """A connection in autocommit, so that we begin by ourselves. It never waits for a lock: its user does, without
    holding up the store thread."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, factory=kind)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise DatabaseUnavailable(
                f"{path} cannot use a write-ahead log", hint="Put the file on a local disk, not on a network drive."
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.create_function("uuid_text", 1, _uuid_text, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


class Lent(sqlite3.Connection):
    """A connection in a handler's hands. It can be taken away while the handler, hung, still holds it."""

    is_revoked = False

    def begin(self) -> None:
        """Forget what the last handler set, and begin."""
        self.isolation_level = None
        self.row_factory = None
        self.text_factory = str
        self.set_progress_handler(lambda: self.is_revoked, _LOOK_EVERY)
        self.execute("BEGIN IMMEDIATE")

    def revoke(self) -> None:
        """Roll back and close, from any thread. Not by `interrupt`: with an open cursor that would also interrupt our
        own ROLLBACK, and the lock would stay."""
        self.is_revoked = True
        with suppress(sqlite3.Error):
            self.execute("PRAGMA query_only = ON")  # what the handler still tries to write is refused
        with suppress(sqlite3.Error):
            if self.in_transaction:
                self.execute("ROLLBACK")
        with suppress(sqlite3.Error):
            self.close()


def _uuid_text(value: bytes) -> str:
    return str(UUID(bytes=value))
