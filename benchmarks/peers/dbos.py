"""DBOS: a workflow of three steps. Its functions that block, in threads, are a little faster than its asynchronous ones."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS

from benchmarks.measuring.database import Connection

ROOM = 4
"""Connections beyond those of the workflows: it has threads of its own."""
_COUNTED = """
SELECT (SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'),
       (SELECT count(*) FROM dbos.operation_outputs)"""


@DBOS.step()
def _first(order_id: str) -> str:
    return order_id


@DBOS.step()
def _second(order_id: str) -> str:
    return order_id


@DBOS.step()
def _third(order_id: str) -> str:
    return order_id


@DBOS.workflow()
def _three_steps(order_id: str, _note: str) -> str:
    """Its input is recorded, whoever needs it."""
    return _third(_second(_first(order_id)))


async def run(url: str, sagas: int, note: str, at_once: int) -> float:
    """The seconds that so many take; it is launched before, and gone afterwards."""
    return await asyncio.to_thread(_run, url, sagas, note, at_once)


def _run(url: str, sagas: int, note: str, at_once: int) -> float:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "sys_db_pool_size": at_once + ROOM,
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    try:
        with ThreadPoolExecutor(at_once) as threads:
            start = time.perf_counter()
            ended = list(threads.map(lambda number: _three_steps(f"o-{number}", note), range(sagas)))
            elapsed = time.perf_counter() - start
    finally:
        DBOS.destroy()
    if ended != [f"o-{number}" for number in range(sagas)]:
        raise RuntimeError("the workflows gave something else")
    return elapsed


async def done(connection: Connection) -> tuple[int, int]:
    """Workflows that succeeded, and steps that were recorded, since there is the database."""
    found = await connection.fetchrow(_COUNTED)
    return (0, 0) if found is None else (found[0], found[1])
