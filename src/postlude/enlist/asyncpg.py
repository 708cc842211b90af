"""asyncpg connections, pooled or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

from postlude.core.statement import Script, Statement
from postlude.enlist.faults import has_ended, meaning, savepoint_name
from postlude.errors import ConnectionClosed, NotInTransaction
from postlude.ports.enlist import Ended

T = TypeVar("T")


class AsyncpgAdapter:
    is_async = True

    def dialect(self, _handle: object) -> str:
        return "postgres"

    def fits(self, handle: object) -> bool:
        cls = type(handle)
        return cls.__module__.startswith("asyncpg.") and cls.__name__ in ("Connection", "PoolConnectionProxy")

    def require_transaction(self, handle: Any) -> None:
        if _is_closed(handle):
            raise ConnectionClosed("this asyncpg connection is closed or was given back to its pool")
        if not handle.is_in_transaction():
            raise NotInTransaction(
                "this asyncpg connection is in autocommit",
                hint="Append inside `async with connection.transaction():`.",
            )

    async def play(self, handle: Any, script: Script[T]) -> T:
        try:
            call = next(script)
            while True:
                sql, names = _compiled(call.statement)
                rows = await _fetch(handle, sql, [call.values[name] for name in names])
                call = script.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result

    @asynccontextmanager
    async def savepoint(self, handle: Any) -> AsyncIterator[None]:
        # Written out: asyncpg's own nested transactions refuse a transaction that was begun by hand.
        name = savepoint_name()
        await handle.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if self.is_in_transaction(handle):
                with suppress(_server_error()):  # what went wrong matters more
                    await handle.execute(f"ROLLBACK TO {name}; RELEASE {name}")
            raise
        try:
            await handle.execute(f"RELEASE {name}")
        except _server_error() as error:
            if has_ended(error):
                raise Ended from error
            raise

    def is_closed(self, handle: Any) -> bool:
        return _is_closed(handle)

    def is_in_transaction(self, handle: Any) -> bool:
        return not _is_closed(handle) and bool(handle.is_in_transaction())

    def mark(self, _handle: Any) -> object | None:
        return True  # it never begins by itself


async def _fetch(handle: Any, sql: str, arguments: list[Any]) -> list[Any]:
    import asyncpg  # the handle is asyncpg's, so it is there

    try:
        rows: list[Any] = await handle.fetch(sql, *arguments)
    except asyncpg.InterfaceError as error:
        if _is_closed(handle):
            raise ConnectionClosed(f"this asyncpg connection is closed: {error}") from error
        raise
    except asyncpg.PostgresError as error:
        if (meant := meaning(error)) is not None:
            raise meant from error
        raise
    return rows


def _server_error() -> type[Exception]:
    import asyncpg

    found: type[Exception] = asyncpg.PostgresError
    return found


def _is_closed(handle: Any) -> bool:
    if type(handle).__name__ == "PoolConnectionProxy" and getattr(handle, "_con", None) is None:
        return True
    return bool(handle.is_closed())


@lru_cache(512)
def _compiled(statement: Statement) -> tuple[str, tuple[str, ...]]:
    return statement.compile("dollar"), statement.parameters
