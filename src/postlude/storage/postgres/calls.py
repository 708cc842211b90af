"""Calls in completion groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from postlude.core.lifecycle import Status
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import Secret, StoredCall, StoredGroup
from postlude.storage.audit_values import audit_values
from postlude.storage.calling import stored_call, stored_group
from postlude.storage.dialect import Dialect
from postlude.storage.postgres.connection import Database
from postlude.storage.postgres.faults import state

NOT_ALLOWED = "42501"
"""SQLSTATE: this role may look, but not at whom calls are about."""


class PostgresCalls:
    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._database = database
        self._dialect = dialect

    async def pseudonym_key(self) -> bytes:
        return bytes((await self._database.fetch("installation_key", name="pseudonym"))[0][0])

    async def secrets(self, entry_id: UUID) -> Mapping[str, bytes]:
        found = await self._database.fetch("call_secrets", event_id=entry_id)
        return {row[0]: bytes(row[1]) for row in found}

    async def secrets_but(self, prefix: bytes, *, after: Secret | None, limit: int) -> list[Secret]:
        begun = {"after": UUID(int=0) if after is None else after.entry_id, "after_part": after.part if after else ""}
        found = await self._database.fetch("secrets_but", prefix=prefix, limit=limit, **begun)
        return [Secret(row[0], row[1], bytes(row[2])) for row in found]

    async def reseal(self, secrets: Sequence[tuple[Secret, Secret]], entry: AuditEntry) -> int:
        found = await self._database.fetch(
            "reseal_secrets",
            event_ids=[old.entry_id for old, _ in secrets],
            parts=[old.part for old, _ in secrets],
            contents=[new.content for _, new in secrets],
            was=[old.content for old, _ in secrets],
            **audit_values(entry),
        )
        return int(found[0][0])

    async def calls(
        self,
        *,
        status: Status | None = None,
        subject: str | None = None,
        ids: Sequence[UUID] | None = None,
        limit: int,
    ) -> list[StoredCall]:
        wanted = None if ids is None else list(ids)
        values = {"status": status, "subject": subject, "ids": wanted, "limit": limit}
        try:
            found = await self._database.fetch("calls", **values)
        except self._database.driver.errors as error:
            if state(error) != NOT_ALLOWED:
                raise
            found = await self._database.fetch("calls_2", **values)
        return [stored_call(row, self._dialect) for row in found]

    async def groups(
        self, *, subject: str | None, is_overdue: bool, limit: int, after: UUID | None = None
    ) -> list[StoredGroup]:
        found = await self._database.fetch(
            "groups", subject=subject, overdue=is_overdue, limit=limit, after=after, ahead=self._database.ahead
        )
        return [stored_group(row, self._dialect) for row in found]

    async def counts(self) -> dict[str, int]:
        return {row[0]: int(row[1]) for row in await self._database.fetch("call_counts")}

    async def overdue_counts(self) -> tuple[int, int]:
        ((groups, calls),) = await self._database.fetch("overdue_counts", ahead=self._database.ahead)
        return int(groups), int(calls)

    async def requeue(self, ids: Sequence[UUID], *, actor: str, reason: str) -> list[UUID]:
        found = await self._database.fetch(
            "requeue_calls", ids=list(ids), actor=actor, reason=reason, ahead=self._database.ahead
        )
        return [row[0] for row in found]
