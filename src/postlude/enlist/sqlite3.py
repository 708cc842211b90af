"""Connections of the standard library's sqlite3."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from postlude.core.statement import Script
from postlude.enlist.faults import has_ended, savepoint_name, translated
from postlude.errors import NotInTransaction
from postlude.ports.enlist import Ended

T = TypeVar("T")


class Sqlite3Adapter:
    is_async = False

    def dialect(self, _handle: object) -> str:
        return "sqlite"

    def fits(self, handle: object) -> bool:
        return isinstance(handle, sqlite3.Connection)

    def require_transaction(self, handle: sqlite3.Connection) -> None:
        with translated():
            if handle.in_transaction or not _autocommits(handle):
                return
        raise NotInTransaction(
            "this sqlite3 connection is in autocommit", hint='Execute "BEGIN IMMEDIATE" first, and commit afterwards.'
        )

    async def play(self, handle: sqlite3.Connection, script: Script[T]) -> T:
        with translated():
            cursor = handle.cursor()
            cursor.row_factory = None  # the caller's may be anything
            try:
                call = next(script)
                while True:
                    rows = cursor.execute(call.statement.sql, call.values).fetchall()
                    call = script.send(rows)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                cursor.close()

    @asynccontextmanager
    async def savepoint(self, handle: sqlite3.Connection) -> AsyncIterator[None]:
        name = savepoint_name()
        with translated():
            if not handle.in_transaction:
                handle.execute("BEGIN")  # else RELEASE would commit
            handle.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):  # what went wrong matters more
                handle.execute(f"ROLLBACK TO {name}")
                handle.execute(f"RELEASE {name}")
            raise
        try:
            with translated():
                handle.execute(f"RELEASE {name}")
        except sqlite3.Error as error:
            if has_ended(error):
                raise Ended from error
            raise

    def is_closed(self, handle: sqlite3.Connection) -> bool:
        try:
            return handle.total_changes < 0
        except sqlite3.ProgrammingError:
            return True

    def is_in_transaction(self, handle: sqlite3.Connection) -> bool:
        try:
            return handle.in_transaction
        except sqlite3.ProgrammingError:  # closed
            return False

    def mark(self, handle: sqlite3.Connection) -> object | None:
        return True if _autocommits(handle) else None


def _autocommits(handle: sqlite3.Connection) -> bool:
    """Would a statement of ours be committed at once? Otherwise Python begins before an INSERT by itself."""
    if getattr(handle, "autocommit", -1) is True:  # Python 3.12 and later
        return True
    return getattr(handle, "autocommit", -1) is not False and handle.isolation_level is None
