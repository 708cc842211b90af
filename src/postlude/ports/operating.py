"""What operators do to a database, one by one or in bulk. The rules of `postlude.ports.store` hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from postlude.ports.privacy import Resealed
from postlude.ports.records import Filter
from postlude.ports.settling import Child


class Operating(Protocol):
    """What an operator does. Each changes rows and writes the audit record in one transaction."""

    async def act(
        self, action: str, event_ids: Sequence[UUID], *, actor: str, reason: str, destination: str | None
    ) -> list[UUID]:
        """`requeue`, `discard` or `bury`; gives the events that changed."""

    async def replay(self, children: Sequence[Child], *, actor: str, reason: str) -> list[UUID]:
        """New deliveries of stored events; those that are open there already are left alone."""

    async def pause(self, destination: str, *, actor: str, reason: str) -> bool: ...
    async def resume(self, destination: str, *, actor: str, reason: str) -> bool: ...


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action by filter: what it is aimed at, and how far it is. It touches only what was there when it began."""

    id: UUID
    action: str
    filter: Filter
    actor: str
    reason: str
    destination: str | None = None
    """Of a replay: where the events go. Of sealing again: the key."""
    status: str = "running"
    cursor: str = ""
    last_seq: int = 0
    total: int = 0
    """As counted when it began."""
    done: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    ended_at: datetime | None = None


class OperationPage(msgspec.Struct, frozen=True):
    """Some rows that an operation is aimed at, in order, and where the next page begins."""

    rows: list[dict[str, Any]]
    cursor: str


class Operations(Protocol):
    """Bulk actions, page by page. A page's changes, its audit, its count and the new cursor are one transaction."""

    async def begin(self, operation: Operation) -> Operation:
        """Gives it as stored; or the one of its kind that is running, which has another id."""

    async def get(self, id: UUID) -> Operation | None: ...
    async def list(self, *, status: str | None, limit: int) -> Sequence[Operation]:
        """Newest first."""

    async def count(self, operation: Operation, statuses: Sequence[str]) -> int:
        """What it is aimed at: open deliveries in these statuses, stored events for a replay, or what other keys of
        the ring have sealed."""

    async def page(self, operation: Operation, statuses: Sequence[str], limit: int) -> OperationPage:
        """What follows its cursor; no rows: that was all. Events to be replayed come oldest first; a row of events to
        be sealed again has the whole of it, as `event`."""

    async def act(self, operation: Operation, page: OperationPage) -> Sequence[UUID] | None:
        """Change what is still as the page says. None: the operation does not stand there any more."""

    async def replay(
        self, operation: Operation, page: OperationPage, children: Sequence[Child]
    ) -> Sequence[UUID] | None:
        """New deliveries; likewise."""

    async def reseal(
        self, operation: Operation, page: OperationPage, resealed: Sequence[Resealed]
    ) -> Sequence[UUID] | None:
        """Other bytes of the same content; likewise."""

    async def resume(self, id: UUID, *, actor: str, reason: str) -> bool:
        """Audit that somebody goes on with it. False: it is not running."""

    async def end(self, operation: Operation, status: str, *, actor: str, reason: str) -> bool:
        """Done, from the operation's own cursor only; or cancelled, wherever it is. False: it is neither."""
