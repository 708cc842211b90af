"""Sessions and connections of SQLAlchemy, sync and async. It is never imported before a handle of it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from postlude.core.statement import Script
from postlude.enlist import sqlalchemy_state as state
from postlude.enlist.sqlalchemy_play import play
from postlude.ports.enlist import Ended

T = TypeVar("T")
SYNC = ("Session", "scoped_session", "Connection")
ASYNC = ("AsyncSession", "async_scoped_session", "AsyncConnection")
SCOPED = ("scoped_session", "async_scoped_session")


def not_ours(
    object: object,  # noqa: A002, ARG001 - Alembic's names
    name: str | None,
    type_: str,
    reflected: bool,  # noqa: ARG001, FBT001
    compare_to: object,  # noqa: ARG001
) -> bool:
    """For Alembic's `include_object`: autogenerate leaves Postlude's tables, partitions and indexes alone."""
    return not (type_ in ("table", "index") and name is not None and name.startswith("postlude_"))


class _Sqlalchemy:
    """Everything that needs no round trip, asked of the sync object that every async one stands for."""

    _kinds: tuple[str, ...]

    def dialect(self, handle: Any) -> str:
        return state.dialect(_inner(handle))

    def fits(self, handle: object) -> bool:
        return any(
            cls.__module__.split(".")[0] == "sqlalchemy" and cls.__name__ in self._kinds for cls in type(handle).__mro__
        )

    def require_transaction(self, handle: Any) -> None:
        state.require(_inner(handle))

    def is_closed(self, handle: Any) -> bool:
        return state.is_closed(_inner(handle))

    def is_in_transaction(self, handle: Any) -> bool:
        inner = _inner(handle)
        return not state.is_closed(inner) and bool(inner.in_transaction())

    def mark(self, handle: Any) -> object | None:
        found: object | None = _inner(handle).get_transaction()
        return found


class SqlalchemyAdapter(_Sqlalchemy):
    is_async = False
    _kinds = SYNC

    async def play(self, handle: Any, script: Script[T]) -> T:
        return play(_inner(handle), script)

    @asynccontextmanager
    async def savepoint(self, handle: Any) -> AsyncIterator[None]:
        inner = _inner(handle)
        nested = state.begin_nested(inner)
        root = inner.get_transaction()
        try:
            yield
        except BaseException:
            state.undo(nested)
            raise
        if inner.get_transaction() is not root:
            raise Ended
        nested.commit()


class AsyncSqlalchemyAdapter(_Sqlalchemy):
    is_async = True
    _kinds = ASYNC

    async def play(self, handle: Any, script: Script[T]) -> T:
        result: T = await _waiting(handle).run_sync(play, script)
        return result

    @asynccontextmanager
    async def savepoint(self, handle: Any) -> AsyncIterator[None]:
        waiting, inner = _waiting(handle), _inner(handle)
        nested = await waiting.run_sync(state.begin_nested)
        root = inner.get_transaction()
        try:
            yield
        except BaseException:
            await waiting.run_sync(lambda _: state.undo(nested))
            raise
        if inner.get_transaction() is not root:
            raise Ended
        await waiting.run_sync(lambda _: nested.commit())


def _waiting(handle: Any) -> Any:
    """The session of this scope, or the handle itself."""
    return handle() if type(handle).__name__ in SCOPED else handle


def _inner(handle: Any) -> Any:
    """The Session or Connection behind; a connection that was never opened has none and stands for itself."""
    handle = _waiting(handle)
    for name in ("sync_session", "sync_connection"):
        if (found := getattr(handle, name, None)) is not None:
            return found
    return handle
