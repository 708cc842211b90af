"""The audit trail and its chain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.audit_chain import AuditRecord, Link, linked
from postlude.errors import DatabaseUnavailable
from postlude.ports.audit import ChainEnd, Place, Slice, Which
from postlude.storage import audit_values
from postlude.storage.audit_values import COLUMNS, SINK
from postlude.storage.postgres import faults
from postlude.storage.postgres.connection import MAX_RETRIES, Database

BEGINNING = datetime(2, 1, 1, tzinfo=UTC)
"""Before every record. A bound that may be null would keep the planner from the index."""


class PostgresAuditTrail:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def recent(self, *, reach: float, limit: int) -> list[UUID]:
        last = await self._database.fetch("audit_last", ahead=self._database.ahead)
        # A value instead of a subquery: the planner then knows how few rows it is about.
        since = last[0][0] - timedelta(seconds=reach) if last else BEGINNING
        return [row[0] for row in await self._database.fetch("audit_recent", since=since, limit=limit)]

    async def look(self, after: Place | None, limit: int, *, older_than: float = 0.0) -> Slice:
        found = await self._database.fetch(
            "audit_look",
            at=after.at if after else BEGINNING,
            id=after.id if after else UUID(int=0),
            limit=limit,
            older_than=timedelta(seconds=older_than),
            ahead=self._database.ahead,
        )
        following = Place(found[-1][0], found[-1][1]) if len(found) == limit else None
        return Slice([row[1] for row in found if row[3] and not row[2]], following)

    async def link(self, ids: Sequence[UUID]) -> list[AuditRecord]:
        for attempt in range(MAX_RETRIES):
            try:
                async with self._database.transaction() as connection:
                    return await self._link(connection, ids)
            except self._database.driver.errors as error:
                if faults.state(error) not in faults.RETRIED:
                    raise
                await asyncio.sleep(random.uniform(0, 0.005 * 2**attempt))  # noqa: S311 - no secret in a delay
        raise DatabaseUnavailable(f"linking met a serialisation failure {MAX_RETRIES} times in a row")

    async def _link(self, connection: Any, ids: Sequence[UUID]) -> list[AuditRecord]:
        async def fetch(name: str, **values: Any) -> list[Any]:
            return await self._database.fetch_on(connection, name, **values)

        stored = await fetch("audit_lock_head")
        last = await fetch("audit_last_link")
        head = audit_values.head_of(stored[0][0] if stored else None, last[0] if last else None)
        records = [_record(row) for row in await fetch("audit_to_link", ids=list(dict.fromkeys(ids)))]
        head, links, placed = linked(head, records)
        if links:
            await fetch(
                "audit_add_links",
                positions=[link.position for link in links],
                ids=[link.audit_id for link in links],
                rows=[link.row_hash for link in links],
                hashes=[link.hash for link in links],
            )
            await fetch("audit_set_head", head=str(head))
        return placed

    async def page_of_chain(self, after: int, limit: int) -> list[tuple[Link, AuditRecord | None]]:
        found = await self._database.fetch("audit_chain", after=after, limit=limit)
        return [(Link(row[0], row[1], bytes(row[2]), bytes(row[3])), _chained(row)) for row in found]

    async def end(self) -> ChainEnd:
        found = await self._database.fetch("audit_end")
        return ChainEnd(found[0][0], found[0][1])

    async def records(self, which: Which, *, limit: int, after: UUID | None) -> list[AuditRecord]:
        found = await self._database.fetch("audit_records", limit=limit, after=after, **msgspec.structs.asdict(which))
        return [audit_values.placed(_record(row), row[COLUMNS], row[COLUMNS + 1]) for row in found]

    async def shipped(self, sink: str) -> int:
        found = await self._database.fetch("audit_shipped", name=SINK + sink)
        return int(found[0][0]) if found else 0

    async def set_shipped(self, sink: str, position: int) -> None:
        await self._database.fetch("audit_set_shipped", name=SINK + sink, value=str(position))

    async def pseudonym_key(self) -> bytes:
        return bytes((await self._database.fetch("installation_key", name="pseudonym"))[0][0])


def _chained(row: Any) -> AuditRecord | None:
    return None if row[4] is None else _record(tuple(row)[4:])


def _record(row: Any) -> AuditRecord:
    columns = tuple(row)
    return audit_values.record(columns, _moment, columns[0])


def _moment(at: datetime) -> datetime:
    return at.astimezone(UTC)
