"""What the engine asks of a database. Each Protocol serves one consumer; one store may answer all of them.

Rules that hold for every store:
- Times are the database's own clock. `Clock.ahead` is added to it, so that tests can move time.
- A method that changes rows says which it changed; the caller explains any difference, it is never an error.
- Connection loss raises `DatabaseUnavailable`; serialisation failures and deadlocks are retried inside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Fence, StoredEvent, Verdict
from postlude.core.floors import Track
from postlude.core.statement import Script
from postlude.ports.append import Prepared
from postlude.ports.receiving import Receiving, Taken
from postlude.ports.sagas import Sagas, SagaScripts


class News(msgspec.Struct, frozen=True):
    """Rows appeared in a lane."""

    destination: str
    lane: int
    priority: int
    pending: bool
    entries: int


class Reading(Protocol):
    """What the relay reads. No method takes locks."""

    async def last_seq(self) -> int:
        """The last seq handed out, committed or not."""

    async def appenders(self) -> frozenset[str]:
        """Transactions that may still commit a delivery. Empty where seq order is commit order."""

    async def news(self, after: int, limit: int) -> list[News]:
        """Which lanes have rows above a seq, looking at no more than `limit` rows."""

    async def read_pending(self, destination: str, tracks: Sequence[Track], limit: int) -> list[Delivery]:
        """Pending rows above each track's floor, at most `limit` of each, in seq order. Blocked ones are flagged,
        never left out."""

    async def read_due(
        self, destination: str, lanes: Sequence[int], limit: int, excluding: Sequence[int]
    ) -> list[Delivery]:
        """Failed, scheduled and claimed rows whose time has come, at most `limit` a lane, flagged likewise."""

    async def freed(self, destination: str, keys: Sequence[tuple[str, int]]) -> list[str]:
        """Which keys have nothing before their seq any more that blocks."""

    async def events(self, event_ids: Sequence[UUID]) -> dict[UUID, StoredEvent]:
        """Events by id; those that are missing are left out."""

    async def has_due(self, destinations: Sequence[str]) -> bool:
        """Is there anything that could be delivered now to these destinations?"""


class Settling(Protocol):
    """What the relay writes. Every method is fenced: it changes only rows in lanes that the fence still owns."""

    async def start(self, fence: Fence, deliveries: Sequence[Delivery], lease: float) -> set[int]:
        """Commit an attempt before it begins (status claimed, attempts and starts + 1). Gives the seqs started."""

    async def settle_sent(self, fence: Fence, deliveries: Sequence[Delivery]) -> set[int]:
        """Delete the rows and write receipts, in one statement. Gives the seqs that are still there: not ours any
        more. What is gone already was settled before, by us or by an operator."""

    async def record(self, fence: Fence, verdicts: Sequence[Verdict]) -> set[int]:
        """Write verdicts other than sent, each only if its row is still as it was read. Gives the seqs changed."""

    async def forgive(self, destination: str, seqs: Sequence[int]) -> None:
        """Take back one start of each row: its attempt was lost, but its worker did not die of it. Not fenced: it
        only keeps innocent entries from being taken for poison."""

    async def condemn(self, destination: str, delivery: Delivery, error: str) -> bool:
        """Make a dead letter of a delivery whose row is gone: its handler committed the settling half-way. Not
        fenced, for there is no row to fight over. False: it is open there."""

    async def expand(self, fence: Fence, seqs: Sequence[int], children: Sequence[Child]) -> set[int]:
        """Replace rows of the destination `route` by their children, in order. Gives the seqs replaced."""


class Child(msgspec.Struct, frozen=True):
    """A delivery made from a `route` row."""

    event_id: UUID
    destination: str
    lane: int
    key: str | None


class Scripts(Protocol):
    """Conversations to be held on a caller's own handle, in the caller's transaction."""

    def append(self, prepared: Sequence[Prepared]) -> Script[list[UUID]]:
        """Write events and deliveries. Same id and same content is a no-op; other content raises IdConflict."""

    def once(self, consumer: str, event_id: UUID) -> Script[bool]:
        """Remember that a consumer has seen an event. False: it had already."""

    def receive(self, taken: Taken) -> Script[set[UUID]]:
        """Write what a consumer took from a broker, where it has not seen it: inbox, events, deliveries, counts. Gives
        the ids that were new to it. Raises IdConflict with the ids under which other content is stored."""

    def lanes(self) -> Script[int | None]:
        """The number of lanes as installed; None when nothing is installed."""

    def settle_handled(self, fence: Fence, delivery: Delivery, idle: float) -> Script[bool]:
        """Lock, delete and write the receipt of one delivery. False: it is busy, gone, or not ours."""


class LiveWorker(msgspec.Struct, frozen=True):
    """A process with a lease."""

    id: UUID
    name: str
    version: str
    started_at: datetime
    stopping: bool
    destinations: tuple[str, ...]
    lease_until: datetime


class OwnedLane(msgspec.Struct, frozen=True):
    """A lane that was just claimed. Up to `cautious_to` a former owner may have died of an entry."""

    lane: int
    epoch: int
    cautious_to: int = 0


class Lease(Protocol):
    """A connection of its own, used by the renewing thread only."""

    async def renew(self, worker: UUID, lease: float) -> bool:
        """Prolong the lease by the database's clock. False: this worker is buried."""


class Ownership(Protocol):
    """Workers, their leases and their lanes."""

    async def register(
        self, worker: UUID, name: str, destinations: Mapping[str, tuple[str, int]], lease: float
    ) -> None:
        """A new worker, the destinations it serves (kind and number of lanes), and their lanes where missing."""

    def lease(self) -> AbstractAsyncContextManager[Lease]:
        """Open the renewing connection; may be called from another thread and event loop."""

    async def bury_workers(self) -> int:
        """Delete workers whose lease ended and free their lanes with a new epoch. Gives the lanes freed."""

    async def live_workers(self) -> list[LiveWorker]:
        """By start time."""

    async def owned_lanes(self, worker: UUID) -> dict[str, dict[int, int]]:
        """What the database says this worker owns: epochs by destination and lane."""

    async def claim_lanes(self, worker: UUID, destination: str, count: int) -> list[OwnedLane]:
        """Take up to that many free lanes; nothing when the worker is not alive."""

    async def release_lanes(self, fence: Fence) -> None:
        """Give lanes back."""

    async def leave(self, worker: UUID) -> None:
        """A clean end: the worker and its ownership are gone at once."""

    async def paused(self) -> frozenset[str]:
        """Destinations an operator has paused."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries are meant; what is None does not count."""

    status: str | None = None
    type: str | None = None
    key: str | None = None
    correlation: str | None = None
    saga: UUID | None = None
    destination: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which audit records are meant; what is None does not count."""

    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Records(Protocol):
    """What insight reads. Rows come back as mappings with the column names of the schema."""

    async def now(self) -> datetime: ...
    async def counts(self) -> dict[str, int]: ...
    async def stats(self) -> list[dict[str, Any]]: ...
    async def list_open(self, which: Filter, *, after: int, limit: int) -> list[dict[str, Any]]: ...
    async def list_settled(self, which: Filter, *, after: tuple[UUID, int], limit: int) -> list[dict[str, Any]]: ...
    async def story(self, event_id: UUID) -> Story | None: ...
    async def destinations(self) -> list[dict[str, Any]]: ...
    async def lane_owners(self) -> list[dict[str, Any]]: ...
    async def unserved(self) -> dict[str, int]: ...
    async def audits(
        self, *, target: str | None, limit: int, which: AuditFilter = ..., after: UUID | None = None
    ) -> list[dict[str, Any]]:
        """Newest first, after the record of that id."""

    def export(self, which: Filter) -> AsyncIterator[StoredEvent]:
        """Every event that fits, oldest id first, read in bounded pages."""


class Story(msgspec.Struct, frozen=True):
    """Everything stored of one event."""

    event: StoredEvent
    deliveries: list[dict[str, Any]]
    receipts: list[dict[str, Any]]
    caused: list[UUID]


class Operating(Protocol):
    """What an operator does. Each changes rows and writes the audit record in one transaction."""

    async def act(
        self, action: str, event_ids: Sequence[UUID], *, actor: str, reason: str, destination: str | None
    ) -> list[UUID]:
        """`requeue`, `discard` or `bury`; gives the events that changed."""

    async def replay(self, children: Sequence[Child], *, actor: str, reason: str) -> list[UUID]:
        """New deliveries of stored events; those that are open there already are left alone."""

    async def pause(self, destination: str, *, actor: str, reason: str) -> bool: ...
    async def resume(self, destination: str, *, actor: str, reason: str) -> bool: ...


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action by filter: what it is aimed at, and how far it is. It touches only what was there when it began."""

    id: UUID
    action: str
    filter: Filter
    actor: str
    reason: str
    destination: str | None = None
    """Of a replay: where the events go."""
    status: str = "running"
    cursor: str = ""
    last_seq: int = 0
    total: int = 0
    """As counted when it began."""
    done: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    ended_at: datetime | None = None


class OperationPage(msgspec.Struct, frozen=True):
    """Some rows that an operation is aimed at, in order, and where the next page begins."""

    rows: list[dict[str, Any]]
    cursor: str


class Operations(Protocol):
    """Bulk actions, page by page. A page's changes, its audit, its count and the new cursor are one transaction."""

    async def begin(self, operation: Operation) -> Operation:
        """Gives it as stored; or the one of its kind that is running, which has another id."""

    async def get(self, id: UUID) -> Operation | None: ...
    async def list(self, *, status: str | None, limit: int) -> Sequence[Operation]:
        """Newest first."""

    async def count(self, operation: Operation, statuses: Sequence[str]) -> int:
        """What it is aimed at: open deliveries in these statuses, or stored events for a replay."""

    async def page(self, operation: Operation, statuses: Sequence[str], limit: int) -> OperationPage:
        """What follows its cursor; no rows: that was all. Events to be replayed come oldest first."""

    async def act(self, operation: Operation, page: OperationPage) -> Sequence[UUID] | None:
        """Change what is still as the page says. None: the operation does not stand there any more."""

    async def replay(
        self, operation: Operation, page: OperationPage, children: Sequence[Child]
    ) -> Sequence[UUID] | None:
        """New deliveries; likewise."""

    async def resume(self, id: UUID, *, actor: str, reason: str) -> bool:
        """Audit that somebody goes on with it. False: it is not running."""

    async def end(self, operation: Operation, status: str, *, actor: str, reason: str) -> bool:
        """Done, from the operation's own cursor only; or cancelled, wherever it is. False: it is neither."""


class DutyRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a duty's turn."""

    rows: int
    seconds: float
    error: str | None = None
    next_in: float | None = None


class TableUse(msgspec.Struct, frozen=True):
    """What a table takes of the disk, its indexes and partitions included. None: this database cannot tell."""

    name: str
    bytes: int | None
    rows: int
    """An estimate."""
    partitions: int = 0


class Upkeep(Protocol):
    """Maintenance; one owner a duty, every step bounded and safe to repeat."""

    async def make_partitions(self, days: int) -> list[str]:
        """Make partitions ahead without ever making an append wait. Gives the names made."""

    async def retire_partitions(self, hours: int, receipts_hours: int | None = None) -> list[str]:
        """Empty partitions older than that, keeping what belongs to open work. Gives the names emptied. Receipts may
        have hours of their own; 0 hours keep for ever."""

    async def prune(
        self,
        *,
        events_hours: int,
        dead_hours: int,
        limit: int,
        receipts_hours: int | None = None,
        inbox_hours: int = 0,
    ) -> int:
        """Delete what is over its retention and lives in no partition. Gives the rows deleted, a saga with its history
        counting as one; 0 means done. 0 hours keep for ever. Ended sagas are kept as long as events."""

    async def duties(self) -> list[dict[str, Any]]:
        """Every duty that a worker ever had: name, owner, ran_at, next_at, rows, seconds, error."""

    async def record_duty(self, name: str, run: DutyRun) -> None: ...

    async def disk_use(self) -> list[TableUse]:
        """Our tables, the largest first."""


class Schema(Protocol):
    """The database's own structure."""

    async def status(self) -> SchemaStatus: ...
    async def upgrade(self, phase: str | None = None, *, lanes: int) -> list[str]:
        """Apply what is pending; safe from many processes at once. Gives the names applied."""

    async def verify(self) -> list[str]:
        """What is not as it should be, in words; empty when all is well."""

    def sql(self, *, lanes: int) -> str:
        """Everything an upgrade would do to an empty database, without connecting."""

    def grants(self, part: str, role: str) -> str:
        """What an owner runs so that a role may do one part (app, worker, viewer) and nothing more."""


class SchemaStatus(msgspec.Struct, frozen=True):
    """How far the schema is."""

    version: int
    newest: int
    pending: tuple[str, ...]
    lanes: int | None
    installation: str | None


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
