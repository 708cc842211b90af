"""Insight: where everything stands. One read side for Python, CLI, console and health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, TypeAlias, TypedDict, Unpack
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.core.lifecycle import OPEN, OUTCOMES, Status
from postlude.core.outcome import Fault
from postlude.errors import ConfigurationError, NaiveDatetime, NotFound
from postlude.insight.consumers import ConsumerView, Inboxes, SeenView
from postlude.ports.operating import Operation, Operations
from postlude.ports.ownership import LiveWorker, Ownership
from postlude.ports.receiving import InboxFilter
from postlude.ports.records import AuditFilter, Filter, Records

MAX_PAGE = 10_000


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery, open or settled, with what one wants to know of its event."""

    seq: int
    event_id: UUID
    destination: str
    status: Status
    type: str | None = None
    key: str | None = None
    lane: int | None = None
    priority: int | None = None
    attempts: int = 0
    max_attempts: int | None = None
    available_at: datetime | None = None
    blocks: bool = False
    error: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """The proof of a settled delivery."""

    seq: int
    event_id: UUID
    destination: str
    outcome: Status
    attempts: int
    settled_at: datetime
    worker: UUID | None = None
    actor: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Some of a list; give `after` back to get what follows. None: that was all."""

    items: list[DeliveryView]
    after: str | None = None

    def __iter__(self) -> Any:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class EventStory(msgspec.Struct, frozen=True):
    """All of one event: what it says, where it went, what caused it and what it caused."""

    event: StoredEvent
    deliveries: list[DeliveryView]
    receipts: list[ReceiptView]
    causes: list[UUID]
    caused: list[UUID]


class DestinationView(msgspec.Struct, frozen=True, kw_only=True):
    """A destination and its open work."""

    name: str
    kind: str | None
    open: dict[str, int]
    oldest_due_seconds: float
    blocked_keys: int
    lanes: int
    lanes_owned: int
    crashes: int
    paused_at: datetime | None = None
    paused_by: str | None = None
    reason: str | None = None


# `list` is a method of Insight, so its type is named here.
Destinations: TypeAlias = list[DestinationView]
Workers: TypeAlias = list[LiveWorker]
Audits: TypeAlias = list[dict[str, Any]]
OperationList: TypeAlias = list[Operation]
Consumers: TypeAlias = list[ConsumerView]
SeenMessages: TypeAlias = list[SeenView]


class ExportFilter(TypedDict, total=False):
    """What else narrows an export."""

    status: Status | str | None
    key: str | None
    correlation: str | None
    saga: UUID | None
    destination: str | None


class Insight:
    def __init__(self, records: Records, ownership: Ownership, operations: Operations, inboxes: Inboxes) -> None:
        self._records = records
        self._ownership = ownership
        self._operations = operations
        self._inboxes = inboxes

    async def counts(self) -> dict[str, int]:
        """Open deliveries by status, zero-filled."""
        found = await self._records.counts()
        return {str(status): found.get(status, 0) for status in OPEN}

    async def list(  # noqa: PLR0917 - the public contract
        self,
        status: Status | str | None = None,
        type: str | None = None,
        key: str | None = None,
        correlation: str | None = None,
        saga: UUID | None = None,
        destination: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
        *,
        until: datetime | None = None,
    ) -> Page:
        """Deliveries, oldest first: the open ones, or those with the outcome `sent` or `discarded`."""
        which = filter_of(
            status=status, type=type, key=key, correlation=correlation, saga=saga, destination=destination, since=since, until=until
        )  # fmt: skip
        if not 1 <= limit <= MAX_PAGE:
            raise ConfigurationError(f"limit must lie between 1 and {MAX_PAGE}, not {limit}")
        if which.status in OUTCOMES:
            return await self._settled(which, limit, after)
        if after and not after.isdecimal():
            raise _astray(after)
        rows = await self._records.list_open(which, after=int(after or 0), limit=limit)
        items = [_delivery(row) for row in rows]
        return Page(items, str(items[-1].seq) if len(items) == limit else None)

    async def event(self, id: UUID | str) -> EventStory:
        """The story of an event; `NotFound` when it never was or is past its retention."""
        event_id = as_uuid(id)
        story = await self._records.story(event_id)
        if story is None:
            raise NotFound(f"there is no event {event_id}", hint="It never was, or retention has removed it.")
        causes = [story.event.causation_id] if story.event.causation_id is not None else []
        deliveries = [_delivery({**row, "type": story.event.type}) for row in story.deliveries]
        return EventStory(story.event, deliveries, [_receipt(row) for row in story.receipts], causes, story.caused)

    async def destinations(self) -> Destinations:
        """Every destination that is known or has open work."""
        known = {row["name"]: row for row in await self._records.destinations() if row["kind"] != "duty"}
        owners = {row["destination"]: row for row in await self._records.lane_owners()}
        stats: dict[str, Audits] = {}
        for row in await self._records.stats():
            stats.setdefault(row["destination"], []).append(row)
        names = sorted({*known, *stats})
        return [_destination(name, known.get(name, {}), stats.get(name, []), owners.get(name, {})) for name in names]

    async def workers(self) -> Workers:
        """The live workers, oldest first."""
        return await self._ownership.live_workers()

    async def unserved(self) -> dict[str, int]:
        """Open work by destination that no live worker serves."""
        return await self._records.unserved()

    async def consumers(self) -> Consumers:
        """What each consumer took from its broker, what became of it, and how far behind it is."""
        return await self._inboxes.consumers()

    async def inbox(
        self,
        *,
        consumer: str | None = None,
        topic: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> SeenMessages:
        """What consumers have seen, newest first."""
        return await self._inboxes.seen(InboxFilter(consumer=consumer, topic=topic, since=since, until=until), limit)

    async def audits(
        self,
        *,
        target: str | None = None,
        limit: int = 100,
        which: AuditFilter | None = None,
        after: UUID | None = None,
    ) -> Audits:
        """What operators did, newest first; the next page is what comes after the id of the last record."""
        return await self._records.audits(target=target, limit=limit, which=which or AuditFilter(), after=after)

    async def operations(self, *, status: str | None = None, limit: int = 100) -> OperationList:
        """Bulk actions, newest first."""
        return [*await self._operations.list(status=status, limit=limit)]

    async def operation(self, id: UUID | str) -> Operation:
        """One bulk action and how far it is."""
        found = await self._operations.get(as_uuid(id, "operation"))
        if found is None:
            raise NotFound(f"there is no operation {id}", hint="postlude operation list")
        return found

    def export(
        self,
        *,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **others: Unpack[ExportFilter],
    ) -> AsyncIterator[StoredEvent]:
        """Every stored event that fits, in bounded pages. Status and destination are those of a delivery of it."""
        return self._records.export(filter_of(type=type, since=since, until=until, **others))

    async def _settled(self, which: Filter, limit: int, after: str | None) -> Page:
        event_id, _, seq = (after or "").partition(":")
        if after and not seq.isdecimal():
            raise _astray(after)
        start = (as_uuid(event_id), int(seq)) if after else (UUID(int=0), 0)
        rows = await self._records.list_settled(which, after=start, limit=limit)
        items = [_delivery({**row, "status": row["outcome"]}) for row in rows]
        return Page(items, f"{items[-1].event_id}:{items[-1].seq}" if len(items) == limit else None)


def filter_of(**given: Any) -> Filter:
    """A checked filter: a known status, times with a zone."""
    if given.get("status") is not None:
        try:
            given["status"] = str(Status(given["status"]))
        except ValueError as error:
            raise ConfigurationError(
                f"there is no status {given['status']!r}", hint=f"One of: {', '.join(Status)}."
            ) from error
    for name in ("since", "until"):
        moment = given.get(name)
        if moment is not None and moment.tzinfo is None:
            raise NaiveDatetime(f"{name} {moment.isoformat()} has no time zone")
    return Filter(**given)


def as_uuid(value: UUID | str, what: str = "event") -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError) as error:
        raise NotFound(f"{value!r} is not an {what} id", hint=f"An {what} id is a UUID.") from error


def _astray(after: str) -> ConfigurationError:
    hint = "Give back the `after` of the page before, with the same filters."
    return ConfigurationError(f"{after!r} is not where a page of this list ended", hint=hint)


def _delivery(row: dict[str, Any]) -> DeliveryView:
    names = DeliveryView.__struct_fields__
    values = {name: value for name, value in row.items() if name in names}
    values["status"] = Status(row["status"])
    values["blocks"] = bool(row.get("blocks"))
    values["error"] = fault_text(row.get("last_error"))
    return DeliveryView(**values)


def _receipt(row: dict[str, Any]) -> ReceiptView:
    names = ReceiptView.__struct_fields__
    return ReceiptView(**{**{name: row[name] for name in names if name in row}, "outcome": Status(row["outcome"])})


def _destination(
    name: str, known: dict[str, Any], stats: list[dict[str, Any]], owners: dict[str, Any]
) -> DestinationView:
    return DestinationView(
        name=name,
        kind=known.get("kind"),
        open={row["status"]: row["entries"] for row in stats},
        oldest_due_seconds=max(
            (row["oldest_due_seconds"] or 0.0 for row in stats if row["status"] != "dead"), default=0.0
        ),
        blocked_keys=sum(row["blocked_keys"] or 0 for row in stats),
        lanes=owners.get("lanes", 0),
        lanes_owned=owners.get("owned", 0),
        crashes=owners.get("crashes") or 0,
        paused_at=known.get("paused_at"),
        paused_by=known.get("paused_by"),
        reason=known.get("reason"),
    )


def fault_text(stored: str | None) -> str | None:
    """A stored error, for people."""
    if stored is None:
        return None
    try:
        return str(msgspec.json.decode(stored, type=Fault))
    except msgspec.MsgspecError:
        return stored
