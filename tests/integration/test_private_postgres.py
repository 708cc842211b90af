"""The server that crash tests kill must itself be trustworthy: what it confirmed is there when it comes back."""

from __future__ import annotations

import asyncpg
import pytest

from tools.servers import PostgresServer


async def _count(server: PostgresServer) -> int:
    connection = await asyncpg.connect(server.dsn)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM note"))
    finally:
        await connection.close()


async def _write(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_it_comes_back_with_what_it_confirmed(private_postgres: PostgresServer) -> None:
    address = private_postgres.dsn
    await _write(private_postgres, "CREATE TABLE note AS SELECT 1 AS id")

    private_postgres.kill()
    with pytest.raises(OSError, match="Connect"):
        await _count(private_postgres)
    private_postgres.start()
    assert await _count(private_postgres) == 1

    await _write(private_postgres, "INSERT INTO note VALUES (2)")
    private_postgres.restart()
    assert await _count(private_postgres) == 2
    assert private_postgres.dsn == address


async def test_a_kill_ends_sessions_in_the_middle_of_work(private_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(private_postgres.dsn)
    transaction = connection.transaction()
    await transaction.start()
    private_postgres.kill()
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await connection.execute("SELECT 1")
    connection.terminate()
