"""The audit trail: what is written, the chain over it, and a copy outside the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from postlude.core.audit_chain import AuditRecord, Detail, Link

__all__ = ["AuditEntry", "AuditRecord", "AuditSink", "AuditTrail", "ChainEnd", "Detail", "Place", "Slice", "Which"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A record to be written. Nothing in it may be personal data: subjects stand there by pseudonym."""

    actor: str
    action: str
    target: str
    reason: str = ""
    detail: Detail = msgspec.field(default_factory=dict)
    trace_id: str | None = None
    old_status: str | None = None
    new_status: str | None = None


class AuditSink(Protocol):
    """A copy outside the database. Records come in the order of the chain, each at least once: one that a sink has
    already, by its position, it passes over. Whatever `append` raises, the same records come again later."""

    async def append(self, records: Sequence[AuditRecord]) -> None: ...


class Place(msgspec.Struct, frozen=True):
    """Between two records, in order of time."""

    at: datetime | float
    """As the database keeps it, to the last digit."""
    id: UUID


class Slice(msgspec.Struct, frozen=True):
    """The records of a stretch of history that are not linked, and where the next stretch begins. None: that was all."""

    unlinked: list[UUID]
    following: Place | None


class ChainEnd(msgspec.Struct, frozen=True):
    """What the head says, as stored, and the position of the last link; both of one moment."""

    head: str | None
    position: int


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are meant; what is None does not count."""

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditTrail(Protocol):
    """Records and their chain. Linking is apart from writing, so that no settle waits for another one's audit."""

    async def recent(self, *, reach: float, limit: int) -> list[UUID]:
        """Records without a link, oldest first, that are not older than `reach` seconds before the last linked one."""

    async def look(self, after: Place | None, limit: int, *, older_than: float = 0.0) -> Slice:
        """The next `limit` records in order of time, whatever their age: what commits late is found here."""

    async def link(self, ids: Sequence[UUID]) -> list[AuditRecord]:
        """Put those that have no link yet at the end of the chain, in order of time, under the lock of its head.
        Raises AuditBroken when the head does not fit the last link."""

    async def page_of_chain(self, after: int, limit: int) -> list[tuple[Link, AuditRecord | None]]:
        """Links above a position in order, each with its record; None: the record is gone."""

    async def end(self) -> ChainEnd: ...

    async def records(self, which: Which, *, limit: int, after: UUID | None) -> list[AuditRecord]:
        """Newest first, after the record of that id."""

    async def shipped(self, sink: str) -> int:
        """The position up to which a sink has everything."""

    async def set_shipped(self, sink: str, position: int) -> None: ...

    async def pseudonym_key(self) -> bytes:
        """What the pseudonyms of data subjects are made with."""
