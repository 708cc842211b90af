"""Connections of psycopg 3, sync and async. It is never imported before a handle of it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

from postlude.core.statement import Row, Script, Statement
from postlude.enlist.faults import failed_transaction, has_ended, prepared_transaction, savepoint_name, translated
from postlude.errors import ConnectionClosed, NotInTransaction
from postlude.ports.enlist import Ended

T = TypeVar("T")
IDLE, FAILED = 0, 3
"""Two of libpq's states of a transaction."""


class _Psycopg:
    """What both kinds share: everything that needs no round trip."""

    _named: str

    def dialect(self, _handle: object) -> str:
        return "postgres"

    def fits(self, handle: object) -> bool:
        return any(
            cls.__module__.split(".")[0] == "psycopg" and cls.__name__ == self._named for cls in type(handle).__mro__
        )

    def require_transaction(self, handle: Any) -> None:
        if handle.closed:
            raise ConnectionClosed("this psycopg connection is closed")
        status = handle.info.transaction_status
        if status == FAILED:
            raise failed_transaction()
        if (two_phase := getattr(handle, "_tpc", None)) and two_phase[1]:
            raise prepared_transaction()
        # In a pipeline a transaction may be begun while its BEGIN has not been sent yet.
        if status == IDLE and handle.autocommit and not getattr(handle, "_num_transactions", 0):
            raise NotInTransaction(
                "this psycopg connection is in autocommit", hint="Append inside `with connection.transaction():`."
            )

    def is_closed(self, handle: Any) -> bool:
        return bool(handle.closed)

    def is_in_transaction(self, handle: Any) -> bool:
        return not handle.closed and handle.info.transaction_status != IDLE

    def mark(self, handle: Any) -> object | None:
        return True if handle.autocommit else None


class PsycopgAdapter(_Psycopg):
    is_async = False
    _named = "Connection"

    async def play(self, handle: Any, script: Script[T]) -> T:
        with _meant(handle), _cursor(handle) as cursor:
            try:
                call = next(script)
                while True:
                    cursor.execute(_compiled(call.statement), call.values)
                    call = script.send(_rows(cursor))
            except StopIteration as end:
                result: T = end.value
                return result

    @asynccontextmanager
    async def savepoint(self, handle: Any) -> AsyncIterator[None]:
        name = savepoint_name()
        with _meant(handle):
            handle.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # what went wrong matters more
                handle.execute(f"ROLLBACK TO {name}")
                handle.execute(f"RELEASE {name}")
            raise
        with _meant(handle):
            handle.execute(f"RELEASE {name}")


class AsyncPsycopgAdapter(_Psycopg):
    is_async = True
    _named = "AsyncConnection"

    async def play(self, handle: Any, script: Script[T]) -> T:
        with _meant(handle):
            async with _async_cursor(handle) as cursor:
                try:
                    call = next(script)
                    while True:
                        await cursor.execute(_compiled(call.statement), call.values)
                        call = script.send(await _async_rows(cursor))
                except StopIteration as end:
                    result: T = end.value
                    return result

    @asynccontextmanager
    async def savepoint(self, handle: Any) -> AsyncIterator[None]:
        name = savepoint_name()
        with _meant(handle):
            await handle.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # what went wrong matters more
                await handle.execute(f"ROLLBACK TO {name}")
                await handle.execute(f"RELEASE {name}")
            raise
        with _meant(handle):
            await handle.execute(f"RELEASE {name}")


def _cursor(handle: Any) -> Any:
    """Of the plain kind: the connection's own may want other placeholders, and give other rows."""
    import psycopg

    return psycopg.Cursor(handle, row_factory=psycopg.rows.tuple_row)


def _async_cursor(handle: Any) -> Any:
    import psycopg

    return psycopg.AsyncCursor(handle, row_factory=psycopg.rows.tuple_row)


def _rows(cursor: Any) -> list[Row]:
    import psycopg

    try:
        rows: list[Row] = cursor.fetchall()
    except psycopg.ProgrammingError:
        if cursor.description is None and cursor.statusmessage:  # it has none to give
            return []
        raise
    return rows


async def _async_rows(cursor: Any) -> list[Row]:
    import psycopg

    try:
        rows: list[Row] = await cursor.fetchall()
    except psycopg.ProgrammingError:
        if cursor.description is None and cursor.statusmessage:
            return []
        raise
    return rows


@contextmanager
def _meant(handle: Any) -> Iterator[None]:
    """A connection may break, or its transaction be over, while a statement of ours runs."""
    import psycopg

    try:
        with translated():
            yield
    except psycopg.Error as error:
        if handle.closed:
            raise ConnectionClosed(f"this psycopg connection is closed: {error}") from error
        if has_ended(error):
            raise Ended from error
        raise


@lru_cache(512)
def _compiled(statement: Statement) -> str:
    return statement.compile("pyformat")
