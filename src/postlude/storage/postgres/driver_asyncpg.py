"""asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import asyncpg

from postlude.core.statement import Statement
from postlude.errors import DatabaseUnavailable
from postlude.storage.postgres import url_parameters
from postlude.storage.postgres.driver import RELEASE, Pool, PoolOptions, SessionOptions

# What it reads from a URL. Anything else there it takes for a setting of the server.
KNOWN = frozenset({
    "host", "port", "dbname", "user", "password", "passfile", "service", "sslmode", "sslcert", "sslkey", "sslrootcert",
    "sslcrl", "sslpassword", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version",
    "target_session_attrs", "krbsrvname", "gsslib", "application_name", "options", "connect_timeout",
})  # fmt: skip
STATEMENTS = 100
CONNECT = 10.0


class AsyncpgDriver:
    name = "asyncpg"
    errors = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
    lost = (asyncpg.InterfaceError, asyncpg.InternalClientError)

    def __init__(self, url: str, session: SessionOptions) -> None:
        place, parameters = url_parameters.read(url, self.name, KNOWN)
        given = {name: parameters.pop(name) for name in ("application_name", "options") if name in parameters}
        self._timeout = float(parameters.pop("connect_timeout", 0))
        self._dsn = f"{place}?{urlencode(parameters)}" if parameters else place
        self._options: dict[str, Any] = {
            "server_settings": {**session.settings, **given},
            "statement_cache_size": STATEMENTS if session.keep_statements else 0,
        }

    def pool(self, options: PoolOptions) -> Pool:
        return AsyncpgPool(
            asyncpg.create_pool(
                self._dsn,
                min_size=options.min,
                max_size=options.max,
                command_timeout=options.command_timeout,
                reset=_keep,
                timeout=self._timeout or CONNECT,
                **self._options,
            ),
            options.command_timeout,
        )

    async def connect(self, *, timeout: float) -> Any:
        return await asyncpg.connect(self._dsn, timeout=self._timeout or timeout, **self._options)

    def announced_process(self, connection: Any) -> int:
        announced: int = connection.get_server_pid()
        return announced

    async def close(self, connection: Any) -> None:
        await connection.close()

    def terminate(self, connection: Any) -> None:
        connection.terminate()

    def fetch(self, connection: Any, statement: Statement, values: Mapping[str, Any]) -> Awaitable[list[Any]]:
        sql, parameters = compiled(statement)
        fetched: Awaitable[list[Any]] = connection.fetch(sql, *[values[name] for name in parameters])
        return fetched

    async def execute(self, connection: Any, sql: str) -> None:
        await connection.execute(sql)

    async def listen(self, connection: Any, channel: str, wake: Callable[[], None]) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(channel, lambda *_: wake())
        await lost.wait()
        raise DatabaseUnavailable("the listening connection is lost")


class AsyncpgPool:
    def __init__(self, pool: Any, patience: float) -> None:
        self._pool = pool
        self._patience = patience

    async def open(self) -> None:
        await self._pool

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except TimeoutError:
            self._pool.terminate()

    def acquire(self) -> Awaitable[Any]:
        acquired: Awaitable[Any] = self._pool.acquire(timeout=self._patience)
        return acquired

    def release(self, connection: Any) -> Awaitable[None]:
        released: Awaitable[None] = self._pool.release(connection, timeout=RELEASE)
        return released


@lru_cache(512)
def compiled(statement: Statement) -> tuple[str, tuple[str, ...]]:
    """The statement in asyncpg's style and the order of its values."""
    return statement.compile("dollar"), statement.parameters


async def _keep(connection: Any) -> None:
    """Nothing to reset, and a reset would be a round trip each."""
