"""The pool of the worker, and how its errors become ours."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

import asyncpg
import msgspec

from postlude.core.statement import Statement
from postlude.errors import DatabaseUnavailable, PostludeError, SchemaMissing
from postlude.ports.clock import Clock

RETRIED = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
MAX_RETRIES = 8
RELEASE = 2.0
"""How long a session may take to confirm that its statement was cancelled; a server that hangs never does."""
LOST = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutdowns, and statements that an administrator or a timeout cancelled
    asyncpg.InsufficientResourcesError,  # too many connections, memory, disk
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.exceptions.InternalClientError,
)
# Worker sessions: generic plans and JIT both hurt statements that read a queue (the statistics lie).
SESSION = {"jit": "off", "plan_cache_mode": "force_custom_plan", "application_name": "postlude"}


class PoolOptions(msgspec.Struct, frozen=True):
    """How many connections, and how patient."""

    min: int = 1
    max: int = 10
    command_timeout: float = 60.0


class Database:
    """Runs named statements on pooled connections. Every statement is its own transaction unless said otherwise."""

    def __init__(self, dsn: str, statements: Mapping[str, Statement], *, clock: Clock, options: PoolOptions) -> None:
        self.dsn = dsn
        self.statements = statements
        self._clock = clock
        self._options = options
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    @property
    def ahead(self) -> timedelta:
        return timedelta(seconds=self._clock.ahead)

    async def open(self) -> None:
        async with self._opening:
            if self._pool is None:
                with translated():
                    self._pool = await asyncpg.create_pool(
                        self.dsn,
                        min_size=self._options.min,
                        max_size=self._options.max,
                        command_timeout=self._options.command_timeout,
                        server_settings=SESSION,
                        reset=_keep,
                        timeout=10,
                    )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), 5)
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """A connection of the pool. Errors of the block pass as they are; only getting one is translated."""
        if self._pool is None:
            await self.open()
        pool = self._pool
        if pool is None:
            raise DatabaseUnavailable("the store is closed")
        with translated():
            connection = await pool.acquire(timeout=self._options.command_timeout)
        try:
            yield connection  # type: ignore[misc]  # a proxy with the connection's own methods
        finally:
            with contextlib.suppress(OSError):  # too slow: the session was ended instead
                await pool.release(connection, timeout=RELEASE)

    async def fetch_on(
        self, connection: asyncpg.Connection[asyncpg.Record], name: str, /, **values: Any
    ) -> list[asyncpg.Record]:
        """Run one named statement on a connection."""
        sql, parameters = compiled(self.statements[name])
        with translated():
            return await connection.fetch(sql, *[values[parameter] for parameter in parameters])

    async def fetch(self, name: str, /, **values: Any) -> list[asyncpg.Record]:
        """Run one named statement by itself; serialisation failures and deadlocks are tried again."""
        for attempt in range(MAX_RETRIES):
            try:
                async with self.connection() as connection:
                    return await self.fetch_on(connection, name, **values)
            except RETRIED:
                await asyncio.sleep(random.uniform(0, 0.005 * 2**attempt))  # noqa: S311 - no secret in a delay
        raise DatabaseUnavailable(f"{name} met a serialisation failure {MAX_RETRIES} times in a row")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        async with self.connection() as connection:
            transaction = connection.transaction()
            with translated():
                await transaction.start()
            try:
                yield connection
            except BaseException:
                # A connection that is gone has rolled back by itself, and what went wrong matters more.
                with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                    await transaction.rollback()
                raise
            with translated():
                await transaction.commit()


@lru_cache(512)
def compiled(statement: Statement) -> tuple[str, tuple[str, ...]]:
    """The statement in asyncpg's style and the order of its values."""
    return statement.compile("dollar"), statement.parameters


@contextmanager
def translated() -> Iterator[None]:
    """Driver errors that have a meaning of ours; the original is the cause."""
    try:
        yield
    except PostludeError:
        raise
    except asyncpg.UndefinedTableError as error:
        raise SchemaMissing(f"the Postlude schema is not there: {error}") from error
    except asyncpg.InvalidCatalogNameError as error:
        raise DatabaseUnavailable(str(error), hint="Create the database first, for instance with createdb.") from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidPasswordError) as error:
        raise DatabaseUnavailable(f"PostgreSQL refuses the user: {error}") from error
    except asyncpg.UndefinedObjectError as error:
        raise DatabaseUnavailable(f"PostgreSQL refuses the connection: {error}") from error
    except LOST as error:
        raise DatabaseUnavailable(f"PostgreSQL cannot be reached: {str(error) or type(error).__name__}") from error


async def _keep(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Nothing to reset: worker statements leave no session state, and a reset would be a round trip each."""
