"""The PostgreSQL store: one pool, all the sides of the port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

from postlude.errors import DatabaseUnavailable
from postlude.ports.audit import AuditTrail
from postlude.ports.calls import Calls, CallScripts
from postlude.ports.clock import Clock
from postlude.ports.operating import Operating, Operations
from postlude.ports.ownership import Ownership
from postlude.ports.privacy import Subjects, SubjectScripts
from postlude.ports.reading import Reading
from postlude.ports.receiving import Receiving
from postlude.ports.records import Records
from postlude.ports.redaction import RedactionScripts
from postlude.ports.sagas import Sagas, SagaScripts
from postlude.ports.scripts import Scripts
from postlude.ports.settling import Settling
from postlude.ports.upkeep import Schema, Upkeep
from postlude.storage import migrate, statements
from postlude.storage.calling import Calling
from postlude.storage.postgres.audit import PostgresAuditTrail
from postlude.storage.postgres.calls import PostgresCalls
from postlude.storage.postgres.connection import Database
from postlude.storage.postgres.dialect import PostgresDialect
from postlude.storage.postgres.driver import PoolOptions
from postlude.storage.postgres.driver_choice import open_driver
from postlude.storage.postgres.operations import PostgresOperations
from postlude.storage.postgres.ownership import PostgresOwnership
from postlude.storage.postgres.reading import PostgresReading
from postlude.storage.postgres.receiving import PostgresReceiving
from postlude.storage.postgres.records import PostgresOperating, PostgresRecords
from postlude.storage.postgres.saga_scripts import PostgresSagaScripts
from postlude.storage.postgres.sagas import PostgresSagas
from postlude.storage.postgres.schema import PostgresSchema
from postlude.storage.postgres.scripts import PostgresScripts
from postlude.storage.postgres.settling import PostgresSettling
from postlude.storage.postgres.subjects import PostgresSubjects, PostgresSubjectScripts
from postlude.storage.postgres.sync import sync_transaction
from postlude.storage.postgres.upkeep import PostgresUpkeep
from postlude.storage.redacting import Redacting

CHANNEL = "postlude_wakeup"
PACKAGE = "postlude.storage.postgres"
RECONNECT = 1.0
log = logging.getLogger("postlude.store")


class PostgresStore:
    dialect = "postgres"

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        schema: str = "public",
        pool: PoolOptions | None = None,
        driver: str | None = None,
    ) -> None:
        named = statements.load(PACKAGE, schema=schema)
        self._quoted = '"' + schema.replace('"', '""') + '"'
        self._url = url
        options = pool or PoolOptions()
        self.database = Database(partial(open_driver, url, driver), named, clock=clock, options=options)
        dialect = PostgresDialect(lambda: self.database.ahead)
        self.reading: Reading = PostgresReading(self.database)
        self.settling: Settling = PostgresSettling(self.database)
        self.scripts: Scripts = PostgresScripts(named)
        self.ownership: Ownership = PostgresOwnership(self.database)
        self.receiving: Receiving = PostgresReceiving(self.database)
        self.records: Records = PostgresRecords(self.database)
        self.operating: Operating = PostgresOperating(self.database)
        self.operations: Operations = PostgresOperations(self.database)
        self.sagas: Sagas = PostgresSagas(self.database)
        self.saga_scripts: SagaScripts = PostgresSagaScripts(named)
        self.calls: Calls = PostgresCalls(self.database, dialect)
        self.call_scripts: CallScripts = Calling(named, dialect)
        self.audits: AuditTrail = PostgresAuditTrail(self.database)
        self.redaction_scripts: RedactionScripts = Redacting(named, dialect)
        self.subjects: Subjects = PostgresSubjects(self.database)
        self.subject_scripts: SubjectScripts = PostgresSubjectScripts(named)
        self.upkeep: Upkeep = PostgresUpkeep(self.database, schema)
        self.schema: Schema = PostgresSchema(self.database, migrate.load(PACKAGE, schema=schema), schema)

    async def open(self) -> None:
        await self.database.open()

    async def close(self) -> None:
        await self.database.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self.database.transaction() as connection:
            yield connection

    def sync_transaction(self) -> AbstractContextManager[Any]:
        return sync_transaction(self._url)

    def abandon(self, handle: object) -> None:
        """Nothing to take away: a thread cannot use a connection of this loop."""

    async def server(self) -> dict[str, Any]:
        async with self.database.connection() as connection:
            found = await self.database.ask(
                connection,
                "SELECT current_setting('server_version') AS version, clock_timestamp() AS now,"
                " current_setting('max_connections')::int AS max_connections, current_setting('jit') AS jit,"
                " (SELECT count(*) FROM pg_stat_activity) AS connections, pg_is_in_recovery() AS standby,"
                " (SELECT max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (clock_timestamp() AT TIME ZONE 'UTC')::date"
                "    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
                "   WHERE i.inhparent = to_regclass(:event) AND c.relname ~ '^postlude_event_[0-9]{8}$')"
                "   AS partitions_ahead_days,"
                " (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(to_regclass(:event)))::bigint AS event_bytes,"
                " (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(to_regclass(:receipt)))::bigint AS receipt_bytes,"
                " pg_total_relation_size(to_regclass(:delivery)) AS delivery_bytes",
                **{name: f"{self._quoted}.postlude_{name}" for name in ("event", "receipt", "delivery")},
            )
        return {**found[0], "is_pooled": bool(self.database.is_pooled)}

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
                await self.database.look()
                if self.database.is_pooled:
                    log.info(
                        "PostgreSQL is reached through a pooler, where LISTEN does not work: polling finds the work"
                    )
                    return
                await self._listen_once(wake)
            await asyncio.sleep(RECONNECT)

    async def _listen_once(self, wake: Callable[[], None]) -> None:
        driver = self.database.driver
        connection = await self.database.connect()
        with self.database.translated():
            try:
                await driver.listen(connection, CHANNEL, wake)
            finally:
                driver.terminate(connection)

    async def hint(self) -> None:
        # A hint may get lost: its commit need not wait for the disk.
        async with self.database.connection() as connection:
            sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, '')"
            await self.database.ask(connection, sql, channel=CHANNEL)
