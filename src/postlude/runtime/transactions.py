"""Where a handler's transaction comes from: our own connection, a pool, or whatever the user's factory gives."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from postlude.errors import ConfigurationError

TransactionFactory = Any
"""An asyncpg pool, or a callable that gives an (async) context manager of a handle inside a transaction."""
Transactions = Callable[[], AbstractAsyncContextManager[Any]]


def transactions_of(given: TransactionFactory | None, own: Transactions) -> Transactions:
    """One way to open a handler's transaction, whatever was given."""
    if given is None:
        return own
    if type(given).__module__.startswith("asyncpg.") and hasattr(given, "acquire"):
        return lambda: _from_pool(given)
    if callable(given):
        return lambda: _from_callable(given)
    raise ConfigurationError(
        f"{type(given).__name__} cannot open transactions",
        hint="Give an asyncpg pool, or a callable that returns an (async) context manager of a connection.",
    )


@contextlib.asynccontextmanager
async def _from_pool(pool: Any) -> AsyncIterator[Any]:
    async with pool.acquire() as connection, connection.transaction():
        yield connection


@contextlib.asynccontextmanager
async def _from_callable(factory: Callable[[], Any]) -> AsyncIterator[Any]:
    opened = factory()
    if hasattr(opened, "__aenter__"):
        async with opened as handle:
            yield handle
    elif hasattr(opened, "__enter__"):
        with opened as handle:
            yield handle
    else:
        raise ConfigurationError(
            f"the transaction factory gave a {type(opened).__name__}, which is no context manager",
            hint="Decorate it with @contextlib.asynccontextmanager (or contextmanager).",
        )
