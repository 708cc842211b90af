"""The PostgreSQL store: one pool, all the sides of the port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from postlude.errors import DatabaseUnavailable
from postlude.ports.clock import Clock
from postlude.ports.store import Operating, Ownership, Reading, Records, Schema, Scripts, Settling, Upkeep
from postlude.storage import migrate, statements
from postlude.storage.postgres.connection import SESSION, Database, PoolOptions, translated
from postlude.storage.postgres.ownership import PostgresOwnership
from postlude.storage.postgres.partitions import Partitions
from postlude.storage.postgres.reading import PostgresReading
from postlude.storage.postgres.records import PostgresOperating, PostgresRecords
from postlude.storage.postgres.schema import PostgresSchema
from postlude.storage.postgres.scripts import PostgresScripts
from postlude.storage.postgres.settling import PostgresSettling

CHANNEL = "postlude_wakeup"
PACKAGE = "postlude.storage.postgres"
RECONNECT = 1.0


class PostgresStore:
    dialect = "postgres"

    def __init__(self, dsn: str, *, clock: Clock, schema: str = "public", pool: PoolOptions | None = None) -> None:
        named = statements.load(PACKAGE, schema=schema)
        self._quoted = '"' + schema.replace('"', '""') + '"'
        self.database = Database(dsn, named, clock=clock, options=pool or PoolOptions())
        self.reading: Reading = PostgresReading(self.database)
        self.settling: Settling = PostgresSettling(self.database)
        self.scripts: Scripts = PostgresScripts(named)
        self.ownership: Ownership = PostgresOwnership(self.database)
        self.records: Records = PostgresRecords(self.database)
        self.operating: Operating = PostgresOperating(self.database)
        self.upkeep: Upkeep = PostgresUpkeep(self.database, schema)
        self.schema: Schema = PostgresSchema(self.database, migrate.load(PACKAGE, schema=schema), schema)

    async def open(self) -> None:
        await self.database.open()

    async def close(self) -> None:
        await self.database.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        async with self.database.transaction() as connection:
            yield connection

    def abandon(self, handle: object) -> None:
        """Nothing to take away: a thread cannot use a connection of this loop."""

    async def server(self) -> dict[str, Any]:
        async with self.database.connection() as connection:
            row = await connection.fetchrow(
                "SELECT current_setting('server_version') AS version, clock_timestamp() AS now,"
                " current_setting('max_connections')::int AS max_connections,"
                " (SELECT count(*) FROM pg_stat_activity) AS connections, pg_is_in_recovery() AS standby,"
                " (SELECT max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (clock_timestamp() AT TIME ZONE 'UTC')::date"
                "    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
                "   WHERE i.inhparent = to_regclass($1) AND c.relname ~ '^postlude_event_[0-9]{8}$')"
                "   AS partitions_ahead_days,"
                " (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(to_regclass($1)))::bigint AS event_bytes,"
                " (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(to_regclass($2)))::bigint AS receipt_bytes,"
                " pg_total_relation_size(to_regclass($3)) AS delivery_bytes",
                *(f"{self._quoted}.postlude_{name}" for name in ("event", "receipt", "delivery")),
            )
        return {} if row is None else dict(row)

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncIterator[None]:
        task = asyncio.create_task(self._listen(wake))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _listen(self, wake: Callable[[], None]) -> None:
        """On a connection of its own; a lost one only costs latency, so it is made again at leisure."""
        while True:
            with suppress(DatabaseUnavailable):
                await self._listen_once(wake)
            await asyncio.sleep(RECONNECT)

    async def _listen_once(self, wake: Callable[[], None]) -> None:
        lost = asyncio.Event()
        with translated():
            connection = await asyncpg.connect(self.database.dsn, timeout=10, server_settings=SESSION)
            connection.add_termination_listener(lambda _: lost.set())
            try:
                await connection.add_listener(CHANNEL, lambda *_: wake())
                await lost.wait()
            finally:
                connection.terminate()

    async def hint(self) -> None:
        async with self.database.connection() as connection:
            await connection.execute(f"NOTIFY {CHANNEL}")


class PostgresUpkeep:
    """Retention: days are retired as partitions; ids that are not ours go in batches."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._partitions = Partitions(database, schema)

    async def make_partitions(self, days: int) -> list[str]:
        return await self._partitions.make(days)

    async def retire_partitions(self, hours: int) -> list[str]:
        return await self._partitions.retire(hours)

    async def prune(self, *, events_hours: int, dead_hours: int, limit: int) -> int:
        pruned = 0
        duties = [("prune_events", events_hours), ("prune_receipts", events_hours), ("prune_dead", dead_hours)]
        for name, hours in duties:
            if hours > 0:
                found = await self._database.fetch(name, hours=hours, limit=limit, ahead=self._database.ahead)
                pruned += found[0][0]
        return pruned
