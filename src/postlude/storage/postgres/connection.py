"""The pool of the worker: named statements, retries, transactions. What is a driver's own is behind its port."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

from postlude.core.statement import Statement
from postlude.errors import DatabaseUnavailable
from postlude.ports.clock import Clock
from postlude.storage.postgres import faults, pooler
from postlude.storage.postgres.driver import Driver, Pool, PoolOptions, SessionOptions

MAX_RETRIES = 8
CONNECT = 10.0


class Database:
    """Runs named statements on pooled connections. Every statement is its own transaction unless said otherwise."""

    is_pooled: bool | None = None
    """Whether a pooler stands in between; None until we have looked."""

    def __init__(
        self,
        open_driver: Callable[[SessionOptions], Driver],
        statements: Mapping[str, Statement],
        *,
        clock: Clock,
        options: PoolOptions,
    ) -> None:
        self.driver = open_driver(SessionOptions())
        self._open_driver = open_driver
        self.statements = statements
        self._clock = clock
        self._options = options
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()

    @property
    def ahead(self) -> timedelta:
        return timedelta(seconds=self._clock.ahead)

    async def open(self) -> None:
        async with self._opening:
            if self._pool is None:
                await self.look()
                pool = self.driver.pool(self._options)
                with self.translated():
                    await pool.open()
                self._pool = pool

    async def connect(self, timeout: float = CONNECT) -> Any:
        """A connection outside the pool; belongs to the event loop that runs."""
        await self.look(timeout)
        with self.translated():
            return await self.driver.connect(timeout=timeout)

    async def look(self, timeout: float = CONNECT) -> None:
        """Find out, once, whether a pooler stands in between."""
        if self.is_pooled is not None:
            return
        careful = self._open_driver(pooler.POOLED)
        with self.translated():
            is_pooled = await pooler.is_between(careful, timeout=timeout)
        if is_pooled:
            self.driver = careful
        self.is_pooled = is_pooled

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection of the pool. Errors of the block pass as they are; only getting one is translated."""
        if self._pool is None:
            await self.open()
        pool = self._pool
        if pool is None:
            raise DatabaseUnavailable("the store is closed")
        try:
            connection = await pool.acquire()
        except Exception as error:
            if (meant := faults.meaning(error, self.driver.lost)) is None:
                raise
            raise meant from error
        try:
            yield connection
        finally:
            with contextlib.suppress(OSError):  # too slow: the session was ended instead
                await pool.release(connection)

    async def fetch_on(self, connection: Any, name: str, /, **values: Any) -> list[Any]:
        """Run one named statement on a connection."""
        try:
            return await self.driver.fetch(connection, self.statements[name], values)
        except Exception as error:
            if (meant := faults.meaning(error, self.driver.lost)) is None:
                raise
            raise meant from error

    async def fetch(self, name: str, /, **values: Any) -> list[Any]:
        """Run one named statement by itself; serialisation failures and deadlocks are tried again."""
        for attempt in range(MAX_RETRIES):
            try:
                async with self.connection() as connection:
                    return await self.fetch_on(connection, name, **values)
            except self.driver.errors as error:
                if faults.state(error) not in faults.RETRIED:
                    raise
                await asyncio.sleep(random.uniform(0, 0.005 * 2**attempt))  # noqa: S311 - no secret in a delay
        raise DatabaseUnavailable(f"{name} met a serialisation failure {MAX_RETRIES} times in a row")

    async def ask(self, connection: Any, sql: str, /, **values: Any) -> list[Any]:
        """Run a statement that has no name: off the beaten path, with errors as they are."""
        return await self.driver.fetch(connection, Statement("", sql), values)

    async def value(self, connection: Any, sql: str, /, **values: Any) -> Any:
        """The first column of the first row; None without one."""
        found = await self.ask(connection, sql, **values)
        return found[0][0] if found else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self.connection() as connection:
            transaction = connection.transaction()
            with self.translated():
                await transaction.__aenter__()
            try:
                yield connection
            except BaseException as error:
                # A connection that is gone has rolled back by itself, and what went wrong matters more.
                with contextlib.suppress(*self.driver.errors):
                    await transaction.__aexit__(type(error), error, error.__traceback__)
                raise
            with self.translated():
                await transaction.__aexit__(None, None, None)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Driver errors that have a meaning of ours become ours; the original is the cause."""
        try:
            yield
        except Exception as error:
            if (meant := faults.meaning(error, self.driver.lost)) is None:
                raise
            raise meant from error
