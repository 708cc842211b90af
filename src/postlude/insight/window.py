"""How far back a replay may reach: a consumer that has forgotten an event would act on it twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import structs

from postlude.errors import BeyondWindow
from postlude.ports.operating import Operation, Operations
from postlude.ports.records import Records

NAMED = 3
"""Of the events that are too old, so many are named."""


class Window:
    """Refuses replays to brokers of events that were made longer ago than that; 0 hours: there is no limit. Handlers
    of this app are another matter: with them, a replay is meant to repeat the effect."""

    def __init__(self, records: Records, operations: Operations, hours: int) -> None:
        self._records = records
        self._operations = operations
        self._hours = hours

    async def require_events(self, to: str, made: Iterable[tuple[UUID, datetime]]) -> None:
        """By ids: all of them, before the first is replayed."""
        if (first := await self._first(to)) is None:
            return
        old = sorted({(created_at, event_id) for event_id, created_at in made if created_at < first})
        if old:
            raise self._refusal(len(old), [{"event_id": one, "created_at": moment} for moment, one in old], to)

    async def require_all(self, operation: Operation, statuses: Sequence[str]) -> None:
        """By a filter: everything that it is aimed at, before it begins."""
        if (first := await self._first(operation.destination or "")) is None:
            return
        until = operation.filter.until
        which = structs.replace(operation.filter, until=first if until is None else min(first, until))
        beyond = structs.replace(operation, filter=which)
        if count := await self._operations.count(beyond, statuses):
            page = await self._operations.page(beyond, statuses, NAMED + 1)  # its last row may be left for the next
            raise self._refusal(count, page.rows, operation.destination)

    async def require_page(self, operation: Operation, rows: Sequence[Mapping[str, Any]]) -> None:
        """Of an operation that was begun: time has gone on, or other code began it."""
        if (first := await self._first(operation.destination or "")) is None:
            return
        if old := [row for row in rows if row["created_at"] < first]:
            raise self._refusal(len(old), old, operation.destination, operation)

    async def _first(self, to: str) -> datetime | None:
        """The time before which events are too old."""
        if not self._hours or not any(
            row["name"] == to and row["kind"] == "broker" for row in await self._records.destinations()
        ):
            return None
        return await self._records.now() - timedelta(hours=self._hours)

    def _refusal(
        self, count: int, old: Sequence[Mapping[str, Any]], to: str | None, operation: Operation | None = None
    ) -> BeyondWindow:
        named = ", ".join(f"{row['event_id']} of {row['created_at']:%Y-%m-%d %H:%M}" for row in old[:NAMED])
        what = "1 event was" if count == 1 else f"{count:,} events were"
        more = ", ..." if count > NAMED else ""
        hint = BeyondWindow.default_hint
        if operation is not None:
            hint += (
                f" Then `postlude operation resume {operation.id}`, or give it up: "
                f"`postlude operation cancel {operation.id}`."
            )
        return BeyondWindow(
            f"{what} made longer ago than inbox.replay_window_hours = {self._hours}, and those who consume from {to} "
            f"may have forgotten them and would act twice: {named}{more}",
            hint=hint,
        )
