"""What insight reads, and what an operator does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.ports.records import AuditFilter, Filter, Story
from postlude.ports.settling import Child
from postlude.ports.trace import trace_id
from postlude.storage.postgres import rows
from postlude.storage.postgres.connection import Database

EXPORT_PAGE = 500
EVERY = AuditFilter()
BURIED = '{"kind":"Buried"}'
BY_IDS = {"seqs": None, "status": None, "operation": None, "was": None, "cursor": None, "trace_id": None}
"""An action on events by id is no page of an operation."""
_FIRST = UUID(int=0)


class PostgresRecords:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def _dicts(self, name: str, /, **values: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._database.fetch(name, **values)]

    async def now(self) -> datetime:
        found: datetime = (await self._database.fetch("database_time", ahead=self._database.ahead))[0][0]
        return found

    async def counts(self) -> dict[str, int]:
        return {row["status"]: row["count"] for row in await self._database.fetch("counts")}

    async def stats(self) -> list[dict[str, Any]]:
        return await self._dicts("stats", ahead=self._database.ahead)

    async def list_open(self, which: Filter, *, after: int, limit: int) -> list[dict[str, Any]]:
        return await self._dicts("list_open", after=after, limit=limit, **msgspec.structs.asdict(which))

    async def list_settled(self, which: Filter, *, after: tuple[UUID, int], limit: int) -> list[dict[str, Any]]:
        values = msgspec.structs.asdict(which)
        return await self._dicts("list_settled", after_event=after[0], after=after[1], limit=limit, **values)

    async def story(self, event_id: UUID) -> Story | None:
        found = await self._database.fetch("events", event_ids=[event_id], low=event_id, high=event_id)
        if not found:
            return None
        return Story(
            rows.event(found[0]),
            await self._dicts("deliveries_of", event_id=event_id),
            await self._dicts("receipts_of", event_id=event_id),
            [row[0] for row in await self._database.fetch("caused_by", event_id=event_id)],
        )

    async def destinations(self) -> list[dict[str, Any]]:
        return await self._dicts("destinations")

    async def lane_owners(self) -> list[dict[str, Any]]:
        return await self._dicts("lane_owners", ahead=self._database.ahead)

    async def unserved(self) -> dict[str, int]:
        found = await self._database.fetch("unserved", ahead=self._database.ahead)
        return {row["destination"]: row["entries"] for row in found}

    async def audits(
        self, *, target: str | None, limit: int, which: AuditFilter = EVERY, after: UUID | None = None
    ) -> list[dict[str, Any]]:
        found = await self._dicts("audits", target=target, limit=limit, after=after, **msgspec.structs.asdict(which))
        return [{**row, "detail": msgspec.json.decode(row["detail"])} for row in found]

    async def export(self, which: Filter) -> AsyncIterator[StoredEvent]:
        after = _FIRST
        while True:
            values = msgspec.structs.asdict(which)
            page = await self._database.fetch("export_events", after=after, limit=EXPORT_PAGE, **values)
            for row in page:
                yield rows.event(row)
            if len(page) < EXPORT_PAGE:
                return
            after = page[-1][0]


class PostgresOperating:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def act(
        self, action: str, event_ids: Sequence[UUID], *, actor: str, reason: str, destination: str | None
    ) -> list[UUID]:
        values: dict[str, Any] = {"event_ids": list(event_ids), "destination": destination, "error": BURIED}
        values |= {"trace_id": trace_id(), "actor": actor, "reason": reason}
        found = await self._database.fetch(action, **{**BY_IDS, **values})
        return list(dict.fromkeys(row[0] for row in found))

    async def replay(self, children: Sequence[Child], *, actor: str, reason: str) -> list[UUID]:
        said = {"actor": actor, "reason": reason, "trace_id": trace_id()}
        found = await self._database.fetch("replay", **{**BY_IDS, **rows.children(children), **said})
        return [row[0] for row in found]

    async def pause(self, destination: str, *, actor: str, reason: str) -> bool:
        return await self._switch("pause", destination, actor, reason)

    async def resume(self, destination: str, *, actor: str, reason: str) -> bool:
        return await self._switch("resume", destination, actor, reason)

    async def _switch(self, name: str, destination: str, actor: str, reason: str) -> bool:
        values = {"destination": destination, "actor": actor, "reason": reason, "trace_id": trace_id()}
        return bool(await self._database.fetch(name, **values))
