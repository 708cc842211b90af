"""Bulk actions. A page is one statement: changes, audit, count and cursor commit together or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.sealing import prefix_of
from postlude.ports.operating import Operation, OperationPage
from postlude.ports.privacy import Resealed
from postlude.ports.records import Filter
from postlude.ports.settling import Child
from postlude.ports.trace import trace_id
from postlude.storage.postgres.connection import Database
from postlude.storage.postgres.records import BURIED
from postlude.storage.postgres.rows import children as children_of
from postlude.storage.postgres.rows import event

MOST_AT_ONCE = 16_000
"""Events made in one millisecond that are still put in order."""
RESEALED_AT_ONCE = 100
"""Each with its payload."""
_encode = msgspec.json.Encoder().encode


class PostgresOperations:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, operation: Operation) -> Operation:
        values = {
            "action": operation.action,
            "filter": _encode(_said(operation.filter)).decode(),
            "destination": operation.destination,
        }
        while True:
            found = await self._database.fetch(
                "begin_operation",
                id=operation.id,
                actor=operation.actor,
                reason=operation.reason,
                last_seq=operation.last_seq,
                total=operation.total,
                **values,
            )
            if found:
                return msgspec.structs.replace(operation, created_at=found[0][0], updated_at=found[0][1])
            # Unless it ended just now, there is one.
            if running := await self._database.fetch("running_operation", **values):
                return _operation(running[0])

    async def get(self, id: UUID) -> Operation | None:
        found = await self._database.fetch("operation", id=id)
        return _operation(found[0]) if found else None

    async def list(self, *, status: str | None, limit: int) -> Sequence[Operation]:
        return [_operation(row) for row in await self._database.fetch("operations", status=status, limit=limit)]

    async def count(self, operation: Operation, statuses: Sequence[str]) -> int:
        if operation.action == "replay":
            found = await self._database.fetch("count_events", **_events(operation, UUID(int=0)))
        elif operation.action == "reseal":
            found = await self._database.fetch("count_sealed", **_sealed(operation))
        else:
            values = _deliveries(operation, statuses)
            found = await self._database.fetch("count_open", **(values | {"after": 0}))
        return int(found[0][0])

    async def page(self, operation: Operation, statuses: Sequence[str], limit: int) -> OperationPage:
        if operation.action == "replay":
            return await self._event_page(operation, limit)
        if operation.action == "reseal":
            return await self._sealed_page(operation, min(limit, RESEALED_AT_ONCE))
        found = await self._database.fetch("open_page", limit=limit, **_deliveries(operation, statuses))
        rows = [dict(row) for row in found]
        return OperationPage(rows, str(rows[-1]["seq"]) if rows else operation.cursor)

    async def act(self, operation: Operation, page: OperationPage) -> Sequence[UUID] | None:
        found = await self._database.fetch(
            operation.action,
            event_ids=list(dict.fromkeys(row["event_id"] for row in page.rows)),
            seqs=[row["seq"] for row in page.rows],
            status=operation.filter.status,
            destination=None,
            error=BURIED,
            **_step(operation, page),
        )
        return _changed(found)

    async def replay(
        self, operation: Operation, page: OperationPage, children: Sequence[Child]
    ) -> Sequence[UUID] | None:
        found = await self._database.fetch("replay", **children_of(children), **_step(operation, page))
        return _changed(found)

    async def reseal(
        self, operation: Operation, page: OperationPage, resealed: Sequence[Resealed]
    ) -> Sequence[UUID] | None:
        found = await self._database.fetch(
            "reseal",
            event_ids=[one.event_id for one in resealed],
            payloads=[one.payload for one in resealed],
            digests=[one.digest for one in resealed],
            headers=[one.header for one in resealed],
            olds=[one.was for one in resealed],
            key=operation.destination,
            **_step(operation, page),
        )
        return _changed(found)

    async def resume(self, id: UUID, *, actor: str, reason: str) -> bool:
        return bool(await self._database.fetch("resume_operation", id=id, actor=actor, reason=reason))

    async def end(self, operation: Operation, status: str, *, actor: str, reason: str) -> bool:
        was = operation.cursor if status == "done" else None
        found = await self._database.fetch(
            "end_operation", id=operation.id, status=status, was=was, actor=actor, reason=reason
        )
        return bool(found)

    async def _sealed_page(self, operation: Operation, limit: int) -> OperationPage:
        after = UUID(operation.cursor) if operation.cursor else UUID(int=0)
        found = await self._database.fetch("sealed_page", after=after, limit=limit, **_sealed(operation))
        rows = [{"event_id": row[0], "event": event(row)} for row in found]
        return OperationPage(rows, str(rows[-1]["event_id"]) if rows else operation.cursor)

    async def _event_page(self, operation: Operation, limit: int) -> OperationPage:
        """By id, which is by time. Ids of one millisecond have no order among themselves, so a page never ends between
        two of them; within it, the time in the database and the work that was done tell the order."""
        after = UUID(operation.cursor) if operation.cursor else UUID(int=0)
        while True:
            found = await self._database.fetch("event_page", limit=limit, **_events(operation, after))
            rows = [dict(row) for row in found]
            if len(rows) < limit:
                break
            last = _millisecond(rows[-1]["event_id"])
            whole = [row for row in rows if _millisecond(row["event_id"]) != last]
            if whole or limit >= MOST_AT_ONCE:
                rows = whole or rows
                break
            limit *= 2
        cursor = str(rows[-1]["event_id"]) if rows else operation.cursor
        return OperationPage(sorted(rows, key=_by_time), cursor)


def _millisecond(event_id: UUID) -> int:
    return event_id.int >> 80


def _by_time(row: Mapping[str, Any]) -> tuple[datetime, int]:
    return row["created_at"], row["seq"] or 0


def _said(which: Filter) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(which).items() if value is not None}


def _deliveries(operation: Operation, statuses: Sequence[str]) -> dict[str, Any]:
    values = msgspec.structs.asdict(operation.filter)
    del values["status"]
    after, last_seq = int(operation.cursor or 0), operation.last_seq
    return {**values, "statuses": list(statuses), "after": after, "last_seq": last_seq}


def _events(operation: Operation, after: UUID) -> dict[str, Any]:
    return {**msgspec.structs.asdict(operation.filter), "after": after, "began": operation.created_at}


def _sealed(operation: Operation) -> dict[str, Any]:
    return {"sealed": prefix_of(), "wanted": prefix_of(operation.destination)}


def _step(operation: Operation, page: OperationPage) -> dict[str, Any]:
    return {
        "operation": operation.id,
        "was": operation.cursor,
        "cursor": page.cursor,
        "actor": operation.actor,
        "reason": operation.reason,
        "trace_id": trace_id(),
    }


def _changed(found: Iterable[Any]) -> Sequence[UUID] | None:
    """The row without an event says that the page was still ours."""
    ids = [row[0] for row in found]
    return [one for one in ids if one is not None] if None in ids else None


def _operation(row: Mapping[str, Any]) -> Operation:
    values = dict(row)
    return Operation(**{**values, "filter": msgspec.json.decode(values["filter"], type=Filter)})
