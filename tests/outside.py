"""Faults of the outside world: the connection breaks at the k-th statement of a transaction, before it runs or after it
ran with its answer lost, and either the process goes on or it is gone; or the database itself refuses the statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from postlude.storage.sqlite import database as sqlite_database
from postlude.storage.sqlite.connection import Lent
from postlude.storage.sqlite.connection import connect as really_connect

LOST, KILLED, REFUSED = "the connection is lost", "the process is gone", "it is refused"
LENT, OWN = "lent", "own"
"""Transactions of bookkeeping, and single statements of the store."""


class Killed(BaseException):
    """The process is gone: nothing of ours may catch it."""


class Faults:
    """Counts the statements of what is watched while armed, and breaks the k-th, once."""

    def __init__(self, where: str, *markers: str) -> None:
        self.where = where
        self.markers = markers
        """Of the store's own statements, what those say that are watched, to the end of their transaction."""
        self.seen: list[str] = []
        self.has_struck = False
        self._is_armed = False
        self._at = 0
        self._after, self._how = False, LOST
        self._open: set[int] = set()

    def plan(self, at: int, *, after: bool, how: str) -> None:
        self._at, self._after, self._how = at, after, how
        self.has_struck = self._is_armed = False
        self.seen = []
        self._open.clear()

    def arm(self) -> None:
        self._is_armed = self._at > 0

    def rest(self) -> None:
        """Nothing breaks until the next plan."""
        self._at, self._is_armed = 0, False

    def strikes(self, connection: object, sql: str) -> bool:
        """Is this the one?"""
        if not self._is_armed or self.has_struck or not self._is_watched(connection, sql):
            return False
        self.seen.append(sql)
        if sql.upper().startswith(("COMMIT", "ROLLBACK")) or self._is_alone(connection):
            self._open.discard(id(connection))
        self.has_struck = len(self.seen) == self._at
        return self.has_struck

    def _is_watched(self, connection: object, sql: str) -> bool:
        if sql.upper().startswith("BEGIN") if self.where == LENT else any(one in sql for one in self.markers):
            self._open.add(id(connection))
        return id(connection) in self._open

    def _is_alone(self, connection: Any) -> bool:
        """A statement without a transaction."""
        return isinstance(connection, asyncpg.Connection) and self.where == OWN

    def error(self) -> BaseException:
        if self._how == REFUSED:
            return asyncpg.DeadlockDetectedError("deadlock detected")
        return Killed() if self._how == KILLED else ConnectionResetError("the outside world")

    def sqlite_error(self) -> BaseException:
        if self._how == KILLED:
            return Killed()
        is_refused = self._how == REFUSED
        error = sqlite3.OperationalError("database is locked" if is_refused else "disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY if is_refused else sqlite3.SQLITE_IOERR
        return error

    # ------------------------------------------------------------ the two drivers

    async def asked(self, connection: Any, sql: str, go: Callable[[], Awaitable[Any]]) -> Any:
        if not self.strikes(connection, sql):
            return await go()
        if self._after:
            await go()
        if self._how != REFUSED:
            connection.terminate()
        elif sql.startswith("COMMIT"):
            await connection.execute("ROLLBACK")  # as the server does when it refuses a commit
        raise self.error()

    def asked_now(self, connection: Any, sql: str, go: Callable[[], Any]) -> Any:
        if not self.strikes(connection, sql):
            return go()
        if self._after and (cursor := go()) is not None:
            cursor.close()  # else what it has not given yet would hold the file
        if connection.in_transaction and (self._how == KILLED or sql.startswith("BEGIN")):
            sqlite3.Connection.rollback(connection)  # as the end of a process does, and SQLite when it cannot begin
        raise self.sqlite_error()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        self._install_asyncpg(patch)
        self._install_sqlite(patch)

    def _install_asyncpg(self, patch: pytest.MonkeyPatch) -> None:
        faults, connection = self, asyncpg.Connection
        fetch, execute = connection.fetch, connection.execute

        async def faulty_fetch(self: Any, query: str, *values: Any, **options: Any) -> Any:
            return await faults.asked(self, query, lambda: fetch(self, query, *values, **options))

        async def faulty_execute(self: Any, query: str, *values: Any, **options: Any) -> Any:
            return await faults.asked(self, query, lambda: execute(self, query, *values, **options))

        patch.setattr(connection, "fetch", faulty_fetch)
        patch.setattr(connection, "execute", faulty_execute)

    def _install_sqlite(self, patch: pytest.MonkeyPatch) -> None:
        faults = self

        class Cursor(sqlite3.Cursor):
            def execute(self, sql: str, values: Any = ()) -> Any:
                return faults.asked_now(self.connection, sql, lambda: super(Cursor, self).execute(sql, values))

        class FaultyLent(Lent):
            def execute(self, sql: str, values: Any = ()) -> Any:
                return self.cursor().execute(sql, values)

            def cursor(self, factory: Any = Cursor) -> Any:
                return super().cursor(Cursor if faults.where == LENT else sqlite3.Cursor)

            def commit(self) -> None:
                if faults.where == LENT:
                    faults.asked_now(self, "COMMIT", super().commit)
                else:
                    super().commit()

        class FaultyOwn(sqlite3.Connection):
            def execute(self, sql: str, values: Any = ()) -> Any:
                return self.cursor().execute(sql, values)

            def cursor(self, factory: Any = Cursor) -> Any:
                return super().cursor(Cursor if faults.where == OWN else sqlite3.Cursor)

        def connect(path: str, kind: type[Any]) -> Any:
            return really_connect(path, FaultyLent if issubclass(kind, Lent) else FaultyOwn)

        patch.setattr(sqlite_database, "connect", connect)
