"""Connections to one SQLite file, set up the way the engine needs them."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from typing import Any, TypeVar
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

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._revoked = threading.Event()
        self.set_progress_handler(self._revoked.is_set, _LOOK_EVERY)

    def __del__(self) -> None:
        with suppress(sqlite3.Error):  # it may never have been opened
            self.close()

    @property
    def is_revoked(self) -> bool:
        return self._revoked.is_set()

    def begin(self) -> None:
        """Forget what the last handler set, and begin."""
        self.isolation_level = None
        self.row_factory = None
        self.text_factory = str
        self.execute("BEGIN IMMEDIATE")

    def revoke(self) -> None:
        """End what runs, roll back, and refuse any further change; from any thread.

        Not by `interrupt`: with an open cursor that would also interrupt our own ROLLBACK, and the lock would stay.
        Nor by `close`: Python crashes when another thread is about to use the connection. It closes when the last
        who holds it lets go.
        """
        self._revoked.set()
        with suppress(sqlite3.Error):
            self.execute("PRAGMA query_only = ON")
        with suppress(sqlite3.Error):
            if self.in_transaction:
                self.execute("ROLLBACK")


def _uuid_text(value: bytes) -> str:
    return str(UUID(bytes=value))
