"""Insight: where everything stands. One read side for Python, CLI, console and health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, TypeAlias, TypedDict, Unpack
from uuid import UUID

from postlude.core.delivery import StoredEvent
from postlude.core.lifecycle import OPEN, OUTCOMES, Status
from postlude.errors import ConfigurationError, NaiveDatetime, NotFound
from postlude.insight.consumers import ConsumerView, Inboxes, SeenView
from postlude.insight.views import DestinationView, EventStory, Page, Rows, delivery_of, destination_of, receipt_of
from postlude.ports.operating import Operation, Operations
from postlude.ports.ownership import LiveWorker, Ownership
from postlude.ports.receiving import InboxFilter
from postlude.ports.records import AuditFilter, Filter, Records

MAX_PAGE = 10_000


# `list` is a method of Insight, so its type is named here.
Destinations: TypeAlias = list[DestinationView]
Workers: TypeAlias = list[LiveWorker]
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
        items = [delivery_of(row) for row in rows]
        return Page(items, str(items[-1].seq) if len(items) == limit else None)

    async def event(self, id: UUID | str) -> EventStory:
        """The story of an event; `NotFound` when it never was or is past its retention."""
        event_id = as_uuid(id)
        story = await self._records.story(event_id)
        if story is None:
            raise NotFound(f"there is no event {event_id}", hint="It never was, or retention has removed it.")
        causes = [story.event.causation_id] if story.event.causation_id is not None else []
        deliveries = [delivery_of({**row, "type": story.event.type}) for row in story.deliveries]
        return EventStory(story.event, deliveries, [receipt_of(row) for row in story.receipts], causes, story.caused)

    async def destinations(self) -> Destinations:
        """Every destination that is known or has open work."""
        known = {row["name"]: row for row in await self._records.destinations() if row["kind"] != "duty"}
        owners = {row["destination"]: row for row in await self._records.lane_owners()}
        stats: dict[str, Rows] = {}
        for row in await self._records.stats():
            stats.setdefault(row["destination"], []).append(row)
        names = sorted({*known, *stats})
        return [destination_of(name, known.get(name, {}), stats.get(name, []), owners.get(name, {})) for name in names]

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
    ) -> Rows:
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
        items = [delivery_of({**row, "status": row["outcome"]}) for row in rows]
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
