"""What an event costs: statements, commits, WAL, time on this process's CPU, connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from benchmarks.measuring.database import Connection, connected
from postlude.storage.postgres.connection import Database

_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> ALL($1::integer[])"
    " AND backend_type = 'client backend'"
)


class Costs:
    """Summed up over everything that was metered."""

    def __init__(self, url: str, connection: Connection) -> None:
        self._url = url
        self._connection = connection
        self.prefix = ""
        """Of the names in the report, where several scenarios have costs."""
        self.unit = "event"
        """What they are the costs of, in these names."""
        self._events = 0
        self._others = 0
        self._others_cpu_us = 0.0
        self._sums = {"statements": 0.0, "commits": 0.0, "wal_bytes": 0.0, "cpu_us": 0.0}
        self._most_connections = 0

    @asynccontextmanager
    async def metered(self, events: int) -> AsyncIterator[None]:
        """Around the work of that many events. All its connections must be closed at the end of the block: only then
        does the server tell what they did."""
        commits, written = await self._so_far()
        start = time.process_time()
        yield
        self._sums["cpu_us"] += (time.process_time() - start) * 1e6
        await self._all_gone()
        commits_after, written_after = await self._so_far()
        self._sums["commits"] += commits_after - commits
        self._sums["wal_bytes"] += written_after - written
        self._events += events

    @contextmanager
    def client(self, events: int) -> Iterator[None]:
        """Around the work of the other side, which has no other costs here than this process's CPU."""
        start = time.process_time()
        yield
        self._others_cpu_us += (time.process_time() - start) * 1e6
        self._others += events

    def forget_client(self) -> None:
        """What it did to warm up does not count."""
        self._others, self._others_cpu_us = 0, 0.0

    def count_statements(self, database: Database) -> None:
        """Those of its pool. Renewals and wake-ups have connections of their own: one statement in three seconds."""
        lend = database.connection

        @asynccontextmanager
        async def lend_counted() -> AsyncIterator[Connection]:
            async with lend() as connection:
                with connection.query_logger(self._note_statement):
                    yield connection

        database.connection = lend_counted  # type: ignore[method-assign]  # nobody but a meter needs such a place

    async def note_connections(self) -> None:
        """How many there are now; the most counts."""
        now = await self._connections()
        self._most_connections = max(self._most_connections, now)

    def per_event(self) -> dict[str, float]:
        """Nothing when nothing was metered, and no statements where nobody counted them."""
        if not self._events:
            return {}
        costs = {f"{name}_per_{self.unit}": value / self._events for name, value in self._sums.items() if value}
        costs["connections"] = self._most_connections
        if self._others:
            costs[f"client_cpu_us_per_{self.unit}"] = self._others_cpu_us / self._others
        return {f"{self.prefix}{name}": value for name, value in costs.items()}

    def _note_statement(self, _query: Any) -> None:
        self._sums["statements"] += 1

    async def _so_far(self) -> tuple[int, int]:
        """Commits in this database, and WAL of the whole server: so let it be a private one."""
        async with connected(self._url) as connection:  # a new session sees new statistics
            found = await connection.fetchrow(
                "SELECT xact_commit, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint FROM pg_stat_database"
                " WHERE datname = current_database()"
            )
        return (0, 0) if found is None else (found[0], found[1])

    async def _connections(self) -> int:
        return int(await self._connection.fetchval(_OTHERS, [self._connection.get_server_pid()]))

    async def _all_gone(self, patience: float = 10.0) -> None:
        deadline = time.monotonic() + patience
        while await self._connections():
            if time.monotonic() > deadline:
                raise TimeoutError("the connections of what was metered are still open")
            await asyncio.sleep(0.02)
