"""The SQLite store: one file, one store thread, all the sides of the port."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from typing import Any

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
from postlude.storage.redacting import Redacting
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.audit import SqliteAuditTrail
from postlude.storage.sqlite.calls import SqliteCalls
from postlude.storage.sqlite.connection import connect, require_file
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.dialect import SqliteDialect
from postlude.storage.sqlite.faults import translated
from postlude.storage.sqlite.operating import SqliteOperating
from postlude.storage.sqlite.operations import SqliteOperations
from postlude.storage.sqlite.ownership import SqliteOwnership
from postlude.storage.sqlite.reading import SqliteReading
from postlude.storage.sqlite.receiving import SqliteReceiving
from postlude.storage.sqlite.records import SqliteRecords
from postlude.storage.sqlite.saga_scripts import SqliteSagaScripts
from postlude.storage.sqlite.sagas import SqliteSagas
from postlude.storage.sqlite.schema import SqliteSchema
from postlude.storage.sqlite.scripts import SqliteScripts
from postlude.storage.sqlite.session import Session
from postlude.storage.sqlite.settling import SqliteSettling
from postlude.storage.sqlite.subjects import SqliteSubjects, SqliteSubjectScripts
from postlude.storage.sqlite.upkeep import SqliteUpkeep

PACKAGE = "postlude.storage.sqlite"
_SETTINGS = ("journal_mode", "synchronous", "foreign_keys", "page_size", "page_count")


class SqliteStore:
    dialect = "sqlite"

    def __init__(self, path: str, *, clock: Clock, busy_timeout: float = 5.0) -> None:
        require_file(path)
        named = statements.load(PACKAGE)
        self._busy_timeout = busy_timeout
        self.database = Database(path, named, clock=clock, busy_timeout=busy_timeout)
        dialect = SqliteDialect(self.database.now)
        self.reading: Reading = SqliteReading(self.database)
        self.settling: Settling = SqliteSettling(self.database)
        self.scripts: Scripts = SqliteScripts(named, self.database.now)
        self.ownership: Ownership = SqliteOwnership(self.database)
        self.receiving: Receiving = SqliteReceiving(self.database)
        self.records: Records = SqliteRecords(self.database)
        self.operating: Operating = SqliteOperating(self.database)
        self.operations: Operations = SqliteOperations(self.database)
        self.sagas: Sagas = SqliteSagas(self.database)
        self.saga_scripts: SagaScripts = SqliteSagaScripts(named, self.database.now)
        self.calls: Calls = SqliteCalls(self.database, dialect)
        self.call_scripts: CallScripts = Calling(named, dialect)
        self.audits: AuditTrail = SqliteAuditTrail(self.database)
        self.redaction_scripts: RedactionScripts = Redacting(named, dialect)
        self.subjects: Subjects = SqliteSubjects(self.database)
        self.subject_scripts: SubjectScripts = SqliteSubjectScripts(named, self.database.now)
        self.upkeep: Upkeep = SqliteUpkeep(self.database)
        self.schema: Schema = SqliteSchema(self.database, migrate.load(PACKAGE))

    async def open(self) -> None:
        """Any use opens the file; this says early whether it can be."""
        await self.server()

    async def close(self) -> None:
        await self.database.close()

    def transaction(self) -> AbstractAsyncContextManager[sqlite3.Connection]:
        """Begun with BEGIN IMMEDIATE. Nobody else in this process writes until it ends, so keep it short."""
        return self.database.lend()

    @contextmanager
    def sync_transaction(self) -> Iterator[sqlite3.Connection]:
        path = self.database.path
        with translated(path):
            connection = connect(path, sqlite3.Connection)
        with closing(connection):
            with translated(path):
                connection.execute(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")
                connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            with translated(path):
                connection.commit()

    def abandon(self, handle: object) -> None:
        """Roll back a transaction whose user hangs and let nothing more be written through it; from any thread."""
        if isinstance(handle, sqlite3.Connection):
            self.database.abandon(handle)

    async def server(self) -> dict[str, Any]:
        return await self.database.read(self._server)

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncIterator[None]:  # noqa: ARG002 - polling finds it
        yield

    async def hint(self) -> None:
        """Nothing to tell: other processes poll the file."""

    def _server(self, session: Session) -> dict[str, Any]:
        ((now,),) = session.fetch("database_time")
        settings = {name: session.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SETTINGS}
        return {"version": sqlite3.sqlite_version, "now": rows.moment(now), "path": self.database.path, **settings}
