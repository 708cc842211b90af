"""Calls in completion groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.lifecycle import Status
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import Secret, StoredCall, StoredGroup
from postlude.storage.audit_values import audit_values
from postlude.storage.calling import stored_call, stored_group
from postlude.storage.dialect import Dialect
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session


class SqliteCalls:
    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._database = database
        self._dialect = dialect

    async def pseudonym_key(self) -> bytes:
        found = await self._database.read(lambda session: session.fetch("installation_key", name="pseudonym"))
        return bytes(found[0][0])

    async def secrets(self, entry_id: UUID) -> Mapping[str, bytes]:
        event = entry_id.bytes
        return dict(await self._database.read(lambda session: session.fetch("call_secrets", event_id=event)))

    async def secrets_but(self, prefix: bytes, *, after: Secret | None, limit: int) -> list[Secret]:
        values: dict[str, Any] = {
            "after": after.entry_id.bytes if after else b"",
            "after_part": after.part if after else "",
        }
        values |= {"prefix": prefix, "limit": limit}
        found = await self._database.read(lambda session: session.fetch("secrets_but", **values))
        return [Secret(UUID(bytes=row[0]), row[1], row[2]) for row in found]

    async def reseal(self, secrets: Sequence[tuple[Secret, Secret]], entry: AuditEntry) -> int:
        return await self._database.write(lambda session: _reseal(session, secrets, entry))

    async def calls(
        self,
        *,
        status: Status | None = None,
        subject: str | None = None,
        ids: Sequence[UUID] | None = None,
        limit: int,
    ) -> list[StoredCall]:
        wanted = {"ids": None, "places": None} if ids is None else rows.ids(ids)
        values = {"status": status and str(status), "subject": subject, "limit": limit, **wanted}
        return [
            stored_call(row, self._dialect)
            for row in await self._database.read(lambda session: session.fetch("calls", **values))
        ]

    async def groups(
        self, *, subject: str | None, is_overdue: bool, limit: int, after: UUID | None = None
    ) -> list[StoredGroup]:
        values = {"subject": subject, "overdue": is_overdue, "limit": limit, "after": after and after.bytes}
        return [
            stored_group(row, self._dialect)
            for row in await self._database.read(lambda session: session.fetch("groups", **values))
        ]

    async def counts(self) -> dict[str, int]:
        return dict(await self._database.read(lambda session: session.fetch("call_counts")))

    async def overdue_counts(self) -> tuple[int, int]:
        ((groups, calls),) = await self._database.read(lambda session: session.fetch("overdue_counts"))
        return groups, calls

    async def requeue(self, ids: Sequence[UUID], *, actor: str, reason: str) -> list[UUID]:
        values = rows.ids(ids) | {"actor": actor, "reason": reason}
        return await self._database.write(lambda session: _requeue(session, values))


def _reseal(session: Session, secrets: Sequence[tuple[Secret, Secret]], entry: AuditEntry) -> int:
    changed = 0
    for old, new in secrets:
        values = {"event_id": old.entry_id.bytes, "part": old.part, "was": old.content, "content": new.content}
        changed += len(session.fetch("reseal_secrets", **values))
    if changed:
        told = msgspec.structs.replace(entry, detail={**entry.detail, "secrets": changed})
        session.fetch("audit", **audit_values(told))
    return changed


def _requeue(session: Session, values: dict[str, Any]) -> list[UUID]:
    session.fetch("requeue_calls", **values)
    return [UUID(bytes=row[0]) for row in session.fetch("requeue_calls_2", **values)]
