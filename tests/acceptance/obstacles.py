"""Something stands in the way of a command that changes a table page by page: it comes half-way, and no further."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import asyncpg

from tests.engine import query

PATIENCE = 150.0
FOR_EVER = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
OTHERS = """
    SELECT 1 FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def wait_for(condition: Callable[[], bool], process: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, process
        time.sleep(0.002)


def standing_in_the_way(url: str, table: str, key: str, place: int) -> AbstractContextManager[Callable[[], bool]]:
    """At the row that has so many before it, in the order of `key`. The command cannot pass it while this lasts,
    however slow or fast it is. Gives what says that it is half-way: a page is done, and the one with the row is not."""
    return (_endless_row if url.startswith("sqlite") else _locked_row)(url, table, key, place)


@contextmanager
def _endless_row(url: str, table: str, key: str, place: int) -> Iterator[Callable[[], bool]]:
    """SQLite has no lock of a row: to change this one takes for ever. Only a kill helps."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)) as connection:
        ((row,),) = connection.execute(f"SELECT rowid FROM {table} ORDER BY {key} LIMIT 1 OFFSET {place}").fetchall()
        connection.execute(
            f"CREATE TRIGGER in_the_way AFTER UPDATE ON {table} WHEN NEW.rowid = {row}"
            f" BEGIN SELECT count(*) FROM ({FOR_EVER}); END"
        )
        yield lambda: bool(connection.execute("SELECT 1 FROM postlude_operation WHERE done > 0").fetchall())
        connection.execute("DROP TRIGGER in_the_way")


@contextmanager
def _locked_row(url: str, table: str, key: str, place: int) -> Iterator[Callable[[], bool]]:
    """Somebody holds the row: the page with it waits, inside its statement. When the way is free, the server may still
    finish that statement although its client is dead; the cursor knows, and this waits for it."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url))
        runner.run(connection.execute("BEGIN"))
        row = f"SELECT {key} FROM {table} ORDER BY {key} OFFSET {place} LIMIT 1"
        runner.run(connection.execute(f"SELECT 1 FROM {table} WHERE {key} = ({row}) FOR UPDATE"))
        yield lambda: bool(runner.run(query(url, WAITING)))
        runner.run(connection.execute("ROLLBACK"))
        runner.run(connection.close())
        wait_for(lambda: not runner.run(query(url, OTHERS)), "a session is left")
