"""The pool of psycopg, made to fail soon: by itself it hides an outage and waits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Any

import psycopg
import psycopg_pool

from postlude.storage.postgres.driver import PoolOptions
from postlude.storage.postgres.psycopg_connection import AsyncConnection, Attempts

NAME = "postlude"
LOOK = 0.25
"""So often one who waits for a connection looks whether any can be made at all."""
KNOWN = 0.02
"""So long he waits when the last attempt has failed: just to make the pool try again."""
OPENING = 15.0
"""The first connection may take longer than a statement."""
RECONNECT = 1.0
"""So long the pool tries by itself, with growing pauses; then whoever asks makes it try again at once."""
IDLE = psycopg.pq.TransactionStatus.IDLE


class PsycopgPool:
    def __init__(self, url: str, parameters: dict[str, Any], options: PoolOptions) -> None:
        self._patience = options.command_timeout
        self._attempts = Attempts()
        self._pool = psycopg_pool.AsyncConnectionPool(
            url,
            kwargs={**parameters, "attempts": self._attempts, "patience": options.command_timeout},
            connection_class=AsyncConnection,
            min_size=options.min,
            max_size=options.max,
            name=NAME,
            open=False,
            reconnect_timeout=RECONNECT,
        )

    async def open(self) -> None:
        await self._pool.open()
        try:
            await self.release(await self._acquire(max(self._patience, OPENING)))
        except BaseException:
            await self._pool.close()
            raise

    async def close(self) -> None:
        await self._pool.close()

    def acquire(self) -> Awaitable[Any]:
        return self._acquire(self._patience)

    def release(self, connection: AsyncConnection) -> Awaitable[None]:
        returning = self._pool.putconn(connection)
        if connection.info.transaction_status == IDLE:
            return returning
        return asyncio.shield(returning)  # waits for a rollback: a caller who is cancelled meanwhile loses no place

    async def _acquire(self, patience: float) -> AsyncConnection:
        deadline = time.monotonic() + patience
        while True:
            try:
                connection = await self._pool.getconn(timeout=KNOWN if self._attempts.refusal else LOOK)
            except psycopg_pool.PoolTimeout:
                if self._attempts.refusal is not None:
                    raise self._attempts.refusal.with_traceback(None) from None
                if time.monotonic() >= deadline:
                    raise
                continue
            if connection.is_alive():
                return connection
            await self._pool.putconn(connection)


class _Quiet(logging.Filter):
    """Lost connections of ours are reported as our errors: the drivers' own lines about them are for debugging."""

    def filter(self, record: logging.LogRecord) -> bool:
        given = record.args if isinstance(record.args, tuple) else ()
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG) or not any(map(_is_ours, given))


def _is_ours(argument: object) -> bool:
    if isinstance(argument, str):
        return argument == NAME or argument.startswith(f"{NAME}-")
    return isinstance(argument, AsyncConnection) or isinstance(getattr(argument, "connection", None), AsyncConnection)


for _name in ("psycopg", "psycopg.pool", "psycopg.transaction"):
    logging.getLogger(_name).addFilter(_Quiet())
