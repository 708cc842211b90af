"""What the engine asks of a database. Each Protocol serves one consumer; one store may answer all of them.

Rules that hold for every store:
- Times are the database's own clock. `Clock.ahead` is added to it, so that tests can move time.
- A method that changes rows says which it changed; the caller explains any difference, it is never an error.
- Connection loss raises `DatabaseUnavailable`; serialisation failures and deadlocks are retried inside.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from postlude.ports.audit import AuditTrail
from postlude.ports.calls import Calls, CallScripts
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


class Store(Protocol):
    """One database, with all its sides."""

    dialect: str
    reading: Reading
    settling: Settling
    scripts: Scripts
    ownership: Ownership
    receiving: Receiving
    records: Records
    operating: Operating
    operations: Operations
    sagas: Sagas
    saga_scripts: SagaScripts
    calls: Calls
    call_scripts: CallScripts
    audits: AuditTrail
    redaction_scripts: RedactionScripts
    subjects: Subjects
    subject_scripts: SubjectScripts
    upkeep: Upkeep
    schema: Schema

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction of our own, on a handle that the enlist adapters know."""

    def sync_transaction(self) -> AbstractContextManager[Any]:
        """The same for code without an event loop, on a connection that lasts just as long."""

    def abandon(self, handle: Any) -> None:
        """Take the handle of a transaction away from a user who hangs; safe from any thread."""

    async def server(self) -> dict[str, Any]:
        """What `doctor` wants to know: version, clock, settings."""

    def listen(self, wake: Any) -> AbstractAsyncContextManager[None]:
        """Call `wake()` whenever another process hints that there is work. Never needed for correctness."""

    async def hint(self) -> None:
        """Tell other processes that there is work."""
