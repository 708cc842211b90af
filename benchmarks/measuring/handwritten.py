"""The other side of sagas: what a careful person writes by hand, a row for each saga and a log of its steps.

It can be resumed after a crash, if somebody finds it; it knows no undo, no retries, no deadlines and no second worker.
"""

from __future__ import annotations

from uuid import UUID

from benchmarks.measuring.database import Connection
from benchmarks.measuring.plain import new_id

STEPS = ("reserve", "charge", "ship")
_TABLES = """
DROP TABLE IF EXISTS plain_saga, plain_saga_step;
CREATE TABLE plain_saga (
    id         uuid        PRIMARY KEY,
    order_id   text        NOT NULL,
    state      bytea       NOT NULL,
    step       int         NOT NULL,
    status     text        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE plain_saga_step (
    saga_id uuid        NOT NULL,
    step    text        NOT NULL,
    result  text,
    at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (saga_id, step)
)"""
_BEGIN = "INSERT INTO plain_saga (id, order_id, state, step, status) VALUES ($1, $2, $3, 0, 'running')"
_LOG = "INSERT INTO plain_saga_step (saga_id, step, result) VALUES ($1, $2, $3)"
_ADVANCE = "UPDATE plain_saga SET step = $2, status = $3, updated_at = now() WHERE id = $1"
_COUNTED = """
SELECT (SELECT count(*) FROM plain_saga WHERE status = 'completed'), (SELECT count(*) FROM plain_saga_step)"""


async def clear(connection: Connection) -> None:
    await connection.execute(_TABLES)
    await connection.execute("CHECKPOINT")


async def run(connection: Connection, order_id: str, state: bytes) -> None:
    """One saga: begun in a transaction, then one for each step with its effect, which is none here."""
    saga_id = new_id()
    async with connection.transaction():
        await connection.execute(_BEGIN, saga_id, order_id, state)
    for number, step in enumerate(STEPS, start=1):
        async with connection.transaction():
            result = await _do(saga_id, step)
            await connection.execute(_LOG, saga_id, step, result)
            status = "completed" if number == len(STEPS) else "running"
            await connection.execute(_ADVANCE, saga_id, number, status)


async def done(connection: Connection) -> tuple[int, int]:
    """Sagas that are completed, and steps in the log."""
    found = await connection.fetchrow(_COUNTED)
    return (0, 0) if found is None else (found[0], found[1])


async def _do(_saga_id: UUID, step: str) -> str:
    return step
