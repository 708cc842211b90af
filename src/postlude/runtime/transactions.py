"""Where a handler's transaction comes from: our own connection, a pool, or whatever the user's factory gives."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from postlude.errors import ConfigurationError

TransactionFactory = Any
"""A pool of asyncpg or psycopg, an SQLAlchemy sessionmaker or engine (sync or async), or a callable that gives an
(async) context manager of a handle inside a transaction."""
HINT = (
    "Give a pool of asyncpg or psycopg, a sessionmaker or an async_sessionmaker, or a callable that returns an (async)"
    " context manager of a handle; decorate a generator with @contextlib.contextmanager or asynccontextmanager."
)


class Opening(msgspec.Struct, frozen=True):
    """A transaction about to be opened."""

    context: AbstractAsyncContextManager[Any]
    blocks: bool
    """Its handle is a sync one: everything on it belongs in one thread, and nothing there waits for an event loop."""


class Transactions:
    """One way to open a handler's transaction, whatever was given."""

    def __init__(self, opening: Callable[[], Opening], *, tried: Iterable[bool] = (), proven: bool) -> None:
        self._opening = opening
        self.tried = set(tried)
        """Where one was opened to see whether it can be: in a thread (True), in the event loop (False)."""
        self.are_proven = proven
        """Was one seen to commit?"""

    def __call__(self) -> Opening:
        return self._opening()


def transactions_of(
    given: TransactionFactory | None, own: Callable[[], AbstractAsyncContextManager[Any]]
) -> Transactions:
    """Our own, those of a pool or an engine, or what the user's callable gives, which nobody knows yet."""
    if given is None:
        return Transactions(lambda: Opening(own(), blocks=False), tried=(True, False), proven=True)
    if _is_of(given, "asyncpg") and hasattr(given, "acquire"):
        return Transactions(lambda: Opening(_from_asyncpg(given), blocks=False), proven=True)
    if _is_of(given, "psycopg_pool"):
        return Transactions(lambda: _opening(given.connection()), proven=True)
    if _is_of(given, "sqlalchemy") and hasattr(given, "begin"):
        return Transactions(lambda: _opening(given.begin()), proven=True)
    if callable(given):
        return Transactions(lambda: _opening(given()), proven=False)
    raise ConfigurationError(f"{type(given).__name__} cannot open transactions", hint=HINT)


def _opening(opened: Any) -> Opening:
    if hasattr(opened, "__aenter__"):
        return Opening(_from_async(opened), blocks=False)
    if hasattr(opened, "__enter__"):
        return Opening(_from_sync(opened), blocks=True)
    raise ConfigurationError(
        f"the transaction factory gave a {type(opened).__name__}, which is no context manager", hint=HINT
    )


@contextlib.asynccontextmanager
async def _from_asyncpg(pool: Any) -> AsyncIterator[Any]:
    async with pool.acquire() as connection, connection.transaction():
        yield connection


@contextlib.asynccontextmanager
async def _from_async(opened: Any) -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:
        handle = await stack.enter_async_context(opened)
        if _is_idle_psycopg(handle):
            if not handle.autocommit:
                await handle.set_autocommit(True)
                stack.push_async_callback(_restored, handle)
            await stack.enter_async_context(handle.transaction())
        elif _is_idle_sqlalchemy(handle):
            await stack.enter_async_context(handle.begin())
        yield handle


@contextlib.asynccontextmanager
async def _from_sync(opened: Any) -> AsyncIterator[Any]:
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(opened)
        if _is_idle_psycopg(handle):
            if not handle.autocommit:
                handle.autocommit = True
                stack.callback(_restore, handle)
            stack.enter_context(handle.transaction())
        elif _is_idle_sqlalchemy(handle):
            stack.enter_context(handle.begin())
        yield handle


def _is_idle_psycopg(handle: Any) -> bool:
    """A block of its own is opened then, in which psycopg refuses commit() and rollback(). Not in autocommit it would
    begin again by itself after a COMMIT, and nobody could see that the handler ended what it was lent."""
    return _is_of(handle, "psycopg") and not handle.closed and not handle.info.transaction_status


def _is_idle_sqlalchemy(handle: Any) -> bool:
    """Its block would end without a commit."""
    return _is_of(handle, "sqlalchemy") and not handle.in_transaction()


async def _restored(handle: Any) -> None:
    if not handle.closed:
        await handle.set_autocommit(False)


def _restore(handle: Any) -> None:
    if not handle.closed:
        handle.autocommit = False


def _is_of(given: object, package: str) -> bool:
    """Of that package, or of a class of the user's made from one of it. Nothing is imported to find out."""
    return any(cls.__module__.split(".")[0] == package for cls in type(given).__mro__)
