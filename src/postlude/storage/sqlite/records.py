"""What insight reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from postlude.core.delivery import StoredEvent
from postlude.core.statement import Row
from postlude.ports.records import AuditFilter, Filter, Story
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session

EXPORT_PAGE = 500
EVERY = AuditFilter()


class SqliteRecords:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> datetime:
        return rows.moment(await self._database.read(lambda session: session.now))

    async def counts(self) -> dict[str, int]:
        return dict(await self._database.read(lambda session: session.fetch("counts")))

    async def stats(self) -> list[dict[str, Any]]:
        return await self._mappings("stats")

    async def list_open(self, which: Filter, *, after: int, limit: int) -> list[dict[str, Any]]:
        return await self._mappings("list_open", after=after, limit=limit, **filter_values(which))

    async def list_settled(self, which: Filter, *, after: tuple[UUID, int], limit: int) -> list[dict[str, Any]]:
        after_event, seq = after
        values = {"after_event": after_event.bytes, "after": seq, "limit": limit}
        return await self._mappings("list_settled", **values, **filter_values(which))

    async def story(self, event_id: UUID) -> Story | None:
        return await self._database.read(lambda session: _story(session, event_id))

    async def destinations(self) -> list[dict[str, Any]]:
        return await self._mappings("destinations")

    async def lane_owners(self) -> list[dict[str, Any]]:
        return await self._mappings("lane_owners")

    async def unserved(self) -> dict[str, int]:
        return dict(await self._database.read(lambda session: session.fetch("unserved")))

    async def audits(
        self, *, target: str | None, limit: int, which: AuditFilter = EVERY, after: UUID | None = None
    ) -> list[dict[str, Any]]:
        values: dict[str, Any] = {"target": target, "actor": which.actor, "action": which.action, "limit": limit}
        values |= {"since": rows.bound(which.since), "until": rows.bound(which.until), "after": after and after.bytes}
        return await self._mappings("audits", **values)

    async def export(self, which: Filter) -> AsyncIterator[StoredEvent]:
        after, values = b"", filter_values(which)
        while True:
            page = await self._database.read(partial(_page, after=after, values=values))
            for row in page:
                yield rows.event(row)
            if len(page) < EXPORT_PAGE:
                return
            after = page[-1][0]

    async def _mappings(self, name: str, /, **values: Any) -> list[dict[str, Any]]:
        found = await self._database.read(lambda session: session.mappings(name, **values))
        return [rows.mapping(row) for row in found]


def _page(session: Session, *, after: bytes, values: dict[str, Any]) -> list[Row]:
    return session.fetch("export_events", after=after, limit=EXPORT_PAGE, **values)


def _story(session: Session, event_id: UUID) -> Story | None:
    found = session.fetch("events", **rows.ids([event_id]))
    if not found:
        return None
    wanted = {"event_id": event_id.bytes}
    return Story(
        rows.event(found[0]),
        [rows.mapping(row) for row in session.mappings("deliveries_of", **wanted)],
        [rows.mapping(row) for row in session.mappings("receipts_of", **wanted)],
        [UUID(bytes=row[0]) for row in session.fetch("caused_by", **wanted)],
    )


def filter_values(which: Filter) -> dict[str, Any]:
    return {
        "status": which.status,
        "type": which.type,
        "key": which.key,
        "correlation": which.correlation,
        "saga": which.saga and which.saga.bytes,
        "destination": which.destination,
        "since": rows.bound(which.since),
        "until": rows.bound(which.until),
    }
