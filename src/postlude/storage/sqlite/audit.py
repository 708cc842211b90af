"""The audit trail and its chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from postlude.core.audit_chain import AuditRecord, Link, linked
from postlude.core.statement import Row
from postlude.ports.audit import ChainEnd, Place, Slice, Which
from postlude.storage import audit_values
from postlude.storage.audit_values import COLUMNS, SINK
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session

BEGINNING = -1e300
"""Before every record. A bound that may be null would keep the planner from the index."""


class SqliteAuditTrail:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def recent(self, *, reach: float, limit: int) -> list[UUID]:
        return await self._database.read(lambda session: _recent(session, reach, limit))

    async def look(self, after: Place | None, limit: int, *, older_than: float = 0.0) -> Slice:
        place = (after.at, after.id.bytes) if after else (BEGINNING, b"")
        found = await self._fetch("audit_look", at=place[0], id=place[1], limit=limit, older_than=older_than)
        following = Place(found[-1][0], UUID(bytes=found[-1][1])) if len(found) == limit else None
        return Slice([UUID(bytes=row[1]) for row in found if row[3] and not row[2]], following)

    async def link(self, ids: Sequence[UUID]) -> list[AuditRecord]:
        return await self._database.write(lambda session: _link(session, ids))

    async def page_of_chain(self, after: int, limit: int) -> list[tuple[Link, AuditRecord | None]]:
        found = await self._fetch("audit_chain", after=after, limit=limit)
        return [(Link(row[0], UUID(bytes=row[1]), bytes(row[2]), bytes(row[3])), _chained(row)) for row in found]

    async def end(self) -> ChainEnd:
        ((head, position),) = await self._fetch("audit_end")
        return ChainEnd(head, position)

    async def records(self, which: Which, *, limit: int, after: UUID | None) -> list[AuditRecord]:
        values: dict[str, Any] = {"target": which.target, "actor": which.actor, "action": which.action, "limit": limit}
        values |= {"since": rows.bound(which.since), "until": rows.bound(which.until), "after": after and after.bytes}
        found = await self._fetch("audit_records", **values)
        return [audit_values.placed(_record(row), row[COLUMNS], row[COLUMNS + 1]) for row in found]

    async def shipped(self, sink: str) -> int:
        found = await self._fetch("audit_shipped", name=SINK + sink)
        return int(found[0][0]) if found else 0

    async def set_shipped(self, sink: str, position: int) -> None:
        values = {"name": SINK + sink, "value": str(position)}
        await self._database.write(lambda session: session.fetch("audit_set_shipped", **values))

    async def pseudonym_key(self) -> bytes:
        return bytes((await self._fetch("installation_key", name="pseudonym"))[0][0])

    async def _fetch(self, name: str, /, **values: Any) -> list[Row]:
        return await self._database.read(lambda session: session.fetch(name, **values))


def _recent(session: Session, reach: float, limit: int) -> list[UUID]:
    last = session.fetch("audit_last")
    since = last[0][0] - reach if last else BEGINNING
    return [UUID(bytes=row[0]) for row in session.fetch("audit_recent", since=since, limit=limit)]


def _link(session: Session, ids: Sequence[UUID]) -> list[AuditRecord]:
    stored, last = session.fetch("audit_lock_head"), session.fetch("audit_last_link")
    head = audit_values.head_of(stored[0][0] if stored else None, last[0] if last else None)
    records = [_record(row) for row in session.fetch("audit_to_link", **rows.ids(ids))]
    head, links, placed = linked(head, records)
    if links:
        places = [(link.position, 16 * at + 1, 32 * at + 1) for at, link in enumerate(links)]
        session.fetch(
            "audit_add_links",
            links=rows.json(places),
            ids=b"".join(link.audit_id.bytes for link in links),
            rows=b"".join(link.row_hash for link in links),
            hashes=b"".join(link.hash for link in links),
        )
        session.fetch("audit_set_head", head=str(head))
    return placed


def _chained(row: Row) -> AuditRecord | None:
    return None if row[4] is None else _record(row[4:])


def _record(row: Row) -> AuditRecord:
    return audit_values.record(row, rows.moment, UUID(bytes=row[0]))
