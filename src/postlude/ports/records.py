"""What insight reads of a database. The rules of `postlude.ports.store` hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries are meant; what is None does not count."""

    status: str | None = None
    type: str | None = None
    key: str | None = None
    correlation: str | None = None
    saga: UUID | None = None
    destination: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which audit records are meant; what is None does not count."""

    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Records(Protocol):
    """What insight reads. Rows come back as mappings with the column names of the schema."""

    async def now(self) -> datetime: ...
    async def counts(self) -> dict[str, int]: ...
    async def stats(self) -> list[dict[str, Any]]: ...
    async def list_open(self, which: Filter, *, after: int, limit: int) -> list[dict[str, Any]]: ...
    async def list_settled(self, which: Filter, *, after: tuple[UUID, int], limit: int) -> list[dict[str, Any]]: ...
    async def story(self, event_id: UUID) -> Story | None: ...
    async def destinations(self) -> list[dict[str, Any]]: ...
    async def lane_owners(self) -> list[dict[str, Any]]: ...
    async def unserved(self) -> dict[str, int]: ...
    async def audits(
        self, *, target: str | None, limit: int, which: AuditFilter = ..., after: UUID | None = None
    ) -> list[dict[str, Any]]:
        """Newest first, after the record of that id."""

    def export(self, which: Filter) -> AsyncIterator[StoredEvent]:
        """Every event that fits, oldest id first, read in bounded pages."""


class Story(msgspec.Struct, frozen=True):
    """Everything stored of one event."""

    event: StoredEvent
    deliveries: list[dict[str, Any]]
    receipts: list[dict[str, Any]]
    caused: list[UUID]
