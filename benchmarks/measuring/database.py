"""A database that nobody else has, for one run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@asynccontextmanager
async def fresh_database(dsn: str) -> AsyncIterator[str]:
    """The address of a new database on that server; it is gone afterwards, whatever happens."""
    name = f"postlude_bench_{uuid4().hex[:12]}"
    async with connected(dsn) as server:
        await server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield urlsplit(dsn)._replace(path=f"/{name}").geturl()
        finally:
            await server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()
