"""The other side: what a careful person writes by hand with asyncpg and one plain table, with no engine at all."""

from __future__ import annotations

import os
import time
from uuid import UUID

from benchmarks.measuring.database import Connection
from postlude.core.uuid7 import uuid7

TOPIC = "events.order.placed"
_TABLE = """
DROP TABLE IF EXISTS plain_outbox;
CREATE TABLE plain_outbox (
    id         bigserial   PRIMARY KEY,
    event_id   uuid        NOT NULL UNIQUE,
    topic      text        NOT NULL,
    payload    bytea       NOT NULL,
    status     text        NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL DEFAULT now()
)"""
_INSERT = "INSERT INTO plain_outbox (event_id, topic, payload) VALUES ($1, $2, $3)"
_READ = "SELECT id, event_id, topic, payload FROM plain_outbox ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED"
_DELETE = "DELETE FROM plain_outbox WHERE id = ANY($1::bigint[])"


async def clear(connection: Connection) -> None:
    await connection.execute(_TABLE)
    await connection.execute("CHECKPOINT")


async def fill(connection: Connection, count: int, payload: bytes) -> None:
    await clear(connection)
    rows = [(new_id(), TOPIC, payload) for _ in range(count)]
    await connection.copy_records_to_table("plain_outbox", records=rows, columns=["event_id", "topic", "payload"])
    await connection.execute("ANALYZE plain_outbox")


async def insert(connection: Connection, payload: bytes) -> None:
    """One event, in the caller's transaction."""
    await connection.execute(_INSERT, new_id(), TOPIC, payload)


async def drain(connection: Connection, batch: int) -> tuple[int, int]:
    """Read and delete until nothing is left. Gives the rows and the bytes of their payloads."""
    count = size = 0
    while True:
        async with connection.transaction():
            rows = await connection.fetch(_READ, batch)
            if not rows:
                return count, size
            size += sum(len(row["payload"]) for row in rows)
            await connection.execute(_DELETE, [row["id"] for row in rows])
        count += len(rows)


def new_id() -> UUID:
    """The same kind of id as ours, so that both sides' indexes grow at their end."""
    return uuid7(time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big"))
