"""DBOS: a workflow of three steps. Its functions that block, in threads, are a little faster than its asynchronous ones."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dbos import DBOS

from benchmarks.measuring.database import Connection

ROOT = Path(__file__).parents[2]
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


async def run(url: str, sagas: int, size: int, at_once: int) -> float:
    """The seconds that so many take, in a process of their own: its threads and its garbage are in nobody's way."""
    command = [sys.executable, "-m", __name__, url, *map(str, (sagas, size, at_once))]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"DBOS ended with exit code {process.returncode}")
    return float(said)


async def done(connection: Connection) -> tuple[int, int]:
    """Workflows that succeeded, and steps that were recorded, since there is the database."""
    found = await connection.fetchrow(_COUNTED)
    return (0, 0) if found is None else (found[0], found[1])


def main(url: str, sagas: int, size: int, at_once: int) -> float:
    """It is launched before the time begins."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "sys_db_pool_size": at_once + ROOM,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    try:
        with ThreadPoolExecutor(at_once) as threads:
            gc.collect()
            start = time.perf_counter()
            ended = list(threads.map(lambda number: _three_steps(f"o-{number}", "x" * size), range(sagas)))
            elapsed = time.perf_counter() - start
    finally:
        DBOS.destroy()
    if ended != [f"o-{number}" for number in range(sagas)]:
        raise RuntimeError("the workflows gave something else")
    return elapsed


if __name__ == "__main__":
    print(main(sys.argv[1], *map(int, sys.argv[2:])))
