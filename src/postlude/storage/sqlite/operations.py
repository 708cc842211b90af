"""Bulk actions. A page is one transaction: changes, audit, count and cursor commit together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.sealing import prefix_of
from postlude.core.statement import Row
from postlude.ports.audit import AuditEntry
from postlude.ports.operating import Operation, OperationPage
from postlude.ports.privacy import Resealed
from postlude.ports.records import Filter
from postlude.ports.settling import Child
from postlude.ports.trace import trace_id
from postlude.storage.audit_values import audit_values
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.operating import BURIED, STEPS
from postlude.storage.sqlite.records import filter_values
from postlude.storage.sqlite.session import Session

RESEALED_AT_ONCE = 100
"""Each with its payload."""


class SqliteOperations:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, operation: Operation) -> Operation:
        return await self._database.write(lambda session: _begin(session, operation))

    async def get(self, id: UUID) -> Operation | None:
        found = await self._database.read(lambda session: session.mappings("operation", id=id.bytes))
        return _operation(found[0]) if found else None

    async def list(self, *, status: str | None, limit: int) -> Sequence[Operation]:
        found = await self._database.read(lambda session: session.mappings("operations", status=status, limit=limit))
        return [_operation(row) for row in found]

    async def count(self, operation: Operation, statuses: Sequence[str]) -> int:
        if operation.action == "reseal":
            name, values = "count_sealed", _sealed(operation)
        else:
            name = "count_events" if operation.action == "replay" else "count_open"
            values = _aimed_at(operation, statuses) | {"after": 0}
        return int((await self._database.read(lambda session: session.fetch(name, **values)))[0][0])

    async def page(self, operation: Operation, statuses: Sequence[str], limit: int) -> OperationPage:
        if operation.action == "reseal":
            return await self._sealed_page(operation, min(limit, RESEALED_AT_ONCE))
        name, at = ("event_page", "position") if operation.action == "replay" else ("open_page", "seq")
        values = _aimed_at(operation, statuses)
        found = await self._database.read(lambda session: session.mappings(name, limit=limit, **values))
        cursor = str(found[-1][at]) if found else operation.cursor
        return OperationPage([rows.mapping(row) for row in found], cursor)

    async def act(self, operation: Operation, page: OperationPage) -> Sequence[UUID] | None:
        values = rows.ids(list(dict.fromkeys(row["event_id"] for row in page.rows)))
        values |= {"seqs": rows.json([row["seq"] for row in page.rows]), "status": operation.filter.status}
        values |= {"destination": None, "error": BURIED, **_step(operation, page)}
        changed = await self._turn(lambda session: _act(session, operation.action, values))
        place = {row["event_id"]: number for number, row in enumerate(page.rows)}
        return None if changed is None else sorted(changed, key=place.__getitem__)

    async def replay(
        self, operation: Operation, page: OperationPage, children: Sequence[Child]
    ) -> Sequence[UUID] | None:
        values = rows.children(children) | _step(operation, page)
        return await self._turn(lambda session: _replay(session, values))

    async def reseal(
        self, operation: Operation, page: OperationPage, resealed: Sequence[Resealed]
    ) -> Sequence[UUID] | None:
        return await self._turn(lambda session: _reseal(session, operation, resealed, _step(operation, page)))

    async def _sealed_page(self, operation: Operation, limit: int) -> OperationPage:
        values = _sealed(operation) | {"after": int(operation.cursor or 0), "limit": limit}
        found = await self._database.read(lambda session: session.fetch("sealed_page", **values))
        page = [{"event_id": one.event_id, "event": one} for one in (rows.event(row[1:]) for row in found)]
        return OperationPage(page, str(found[-1][0]) if found else operation.cursor)

    async def resume(self, id: UUID, *, actor: str, reason: str) -> bool:
        values = {"id": id.bytes, "actor": actor, "reason": reason}
        return await self._database.write(lambda session: _resume(session, values))

    async def end(self, operation: Operation, status: str, *, actor: str, reason: str) -> bool:
        values: dict[str, Any] = {"id": operation.id.bytes, "status": status, "actor": actor, "reason": reason}
        values |= {"was": operation.cursor if status == "done" else None, "cursor": None, "changed": 0}
        return await self._database.write(lambda session: _end(session, values))

    async def _turn(self, work: Any) -> Sequence[UUID] | None:
        try:
            changed: Sequence[UUID] = await self._database.write(work)
        except _Elsewhere:
            return None
        return changed


class _Elsewhere(Exception):
    """The operation does not stand where the page was read: what the page changed is rolled back."""


def _begin(session: Session, operation: Operation) -> Operation:
    values: dict[str, Any] = {
        "action": operation.action,
        "filter": rows.json(_said(operation.filter)),
        "destination": operation.destination,
    }
    given = {name: getattr(operation, name) for name in ("actor", "reason", "last_seq", "total")}
    if session.fetch("begin_operation", id=operation.id.bytes, **given, **values):
        began = rows.moment(session.now)
        return msgspec.structs.replace(operation, created_at=began, updated_at=began)
    return _operation(session.mappings("running_operation", **values)[0])


def _act(session: Session, action: str, values: dict[str, Any]) -> list[UUID]:
    changed = session.fetch(action, **values)
    for step in STEPS[action]:
        session.fetch(step, **values)
    return _counted(session, changed, values)


def _replay(session: Session, values: dict[str, Any]) -> list[UUID]:
    added = rows.json([row[0] for row in session.fetch("replay", **values)])
    return _counted(session, session.fetch("replay_2", seqs=added, **values), values)


def _reseal(session: Session, operation: Operation, resealed: Sequence[Resealed], values: dict[str, Any]) -> list[UUID]:
    changed: list[UUID] = []
    for one in resealed:
        bound = {"event_id": one.event_id.bytes, "old": one.was, "header": one.header}
        if session.fetch("reseal", payload=one.payload, digest=one.digest, **bound):
            changed.append(one.event_id)
    detail: dict[str, str | int] = {"events": len(changed), "key": operation.destination or ""}
    actor, reason = operation.actor, operation.reason
    told = AuditEntry(actor=actor, action="reseal", target=str(operation.id), reason=reason, detail=detail)
    session.fetch("audit", **audit_values(told))
    return _counted(session, [(str(one),) for one in changed], values)


def _counted(session: Session, changed: Sequence[Row], values: dict[str, Any]) -> list[UUID]:
    if not session.fetch("end_operation", status="running", changed=len(changed), **_of_operation(values)):
        raise _Elsewhere
    return [UUID(row[0]) for row in changed]


def _of_operation(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("id", "was", "cursor")}


def _resume(session: Session, values: dict[str, Any]) -> bool:
    found = session.fetch("resume_operation", **values)
    for (action,) in found:
        session.fetch("resume_operation_2", action=action, **values)
    return bool(found)


def _end(session: Session, values: dict[str, Any]) -> bool:
    found = session.fetch("end_operation", **values)
    for action, done in found if values["status"] == "cancelled" else ():
        session.fetch("end_operation_2", action=action, done=done, **values)
    return bool(found)


def _said(which: Filter) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(which).items() if value is not None}


def _aimed_at(operation: Operation, statuses: Sequence[str]) -> dict[str, Any]:
    values = filter_values(operation.filter) | {"after": int(operation.cursor or 0)}
    if operation.action == "replay":
        # Of one moment, those that were there and those that came are not told apart: both go.
        return values | {"began": rows.seconds(operation.created_at)}
    del values["status"]
    return values | {"statuses": rows.json(list(statuses)), "last_seq": operation.last_seq}


def _sealed(operation: Operation) -> dict[str, Any]:
    return {"sealed": prefix_of(), "wanted": prefix_of(operation.destination)}


def _step(operation: Operation, page: OperationPage) -> dict[str, Any]:
    detail = rows.json({"operation": operation.id})
    place = {"id": operation.id.bytes, "was": operation.cursor, "cursor": page.cursor}
    return {"actor": operation.actor, "reason": operation.reason, "detail": detail, "trace_id": trace_id(), **place}


def _operation(row: dict[str, Any]) -> Operation:
    values = rows.mapping(row)
    return Operation(**{**values, "filter": msgspec.json.decode(values["filter"], type=Filter)})
