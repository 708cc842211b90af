"""Connections of aiosqlite. It is never imported: a handle of it brings it along."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from postlude.core.statement import Script
from postlude.enlist.faults import has_ended, savepoint_name, translated
from postlude.errors import ConnectionClosed, NotInTransaction
from postlude.ports.enlist import Ended

T = TypeVar("T")


class AiosqliteAdapter:
    is_async = True

    def dialect(self, _handle: object) -> str:
        return "sqlite"

    def fits(self, handle: object) -> bool:
        cls = type(handle)
        return cls.__module__.split(".")[0] == "aiosqlite" and cls.__name__ == "Connection"

    def require_transaction(self, handle: Any) -> None:
        with _translated(handle):
            if handle.in_transaction or not _autocommits(handle):
                return
        raise NotInTransaction(
            "this aiosqlite connection is in autocommit",
            hint='Await execute("BEGIN IMMEDIATE") first, and commit afterwards.',
        )

    async def play(self, handle: Any, script: Script[T]) -> T:
        with _translated(handle):
            async with handle.cursor() as cursor:
                cursor.row_factory = None  # the caller's may be anything
                try:
                    call = next(script)
                    while True:
                        await cursor.execute(call.statement.sql, call.values)
                        call = script.send(list(await cursor.fetchall()))
                except StopIteration as end:
                    result: T = end.value
                    return result

    @asynccontextmanager
    async def savepoint(self, handle: Any) -> AsyncIterator[None]:
        name = savepoint_name()
        with _translated(handle):
            if not handle.in_transaction:
                await handle.execute("BEGIN")  # else RELEASE would commit
            await handle.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error, ValueError):  # what went wrong matters more
                await handle.execute(f"ROLLBACK TO {name}")
                await handle.execute(f"RELEASE {name}")
            raise
        try:
            with _translated(handle):
                await handle.execute(f"RELEASE {name}")
        except sqlite3.Error as error:
            if has_ended(error):
                raise Ended from error
            raise

    def is_closed(self, handle: Any) -> bool:
        try:
            return int(handle.total_changes) < 0
        except (sqlite3.ProgrammingError, ValueError):
            return True

    def is_in_transaction(self, handle: Any) -> bool:
        try:
            return bool(handle.in_transaction)
        except (sqlite3.ProgrammingError, ValueError):  # closed
            return False

    def mark(self, handle: Any) -> object | None:
        return True if _autocommits(handle) else None


def _autocommits(handle: Any) -> bool:
    mode = getattr(getattr(handle, "_conn", None), "autocommit", -1)  # Python 3.12 and later
    return mode is True or (mode is not False and handle.isolation_level is None)


@contextmanager
def _translated(handle: Any) -> Iterator[None]:
    try:
        with translated():
            yield
    except ValueError as error:  # what aiosqlite says of a handle that is closed, or not open yet
        try:
            _ = handle.in_transaction
        except ValueError:
            raise ConnectionClosed("this aiosqlite connection is not open") from error
        raise
