"""Conversations on a caller's own handle. The rules of `postlude.ports.store` hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from postlude.core.delivery import Delivery, Fence
from postlude.core.statement import Script
from postlude.ports.append import Prepared
from postlude.ports.audit import AuditEntry
from postlude.ports.receiving import Taken


class Scripts(Protocol):
    """Conversations to be held on a caller's own handle, in the caller's transaction."""

    def append(self, prepared: Sequence[Prepared]) -> Script[list[UUID]]:
        """Write events and deliveries. Same id and same content is a no-op; other content raises IdConflict."""

    def once(self, consumer: str, event_id: UUID) -> Script[bool]:
        """Remember that a consumer has seen an event. False: it had already."""

    def receive(self, taken: Taken) -> Script[set[UUID]]:
        """Write what a consumer took from a broker, where it has not seen it: inbox, events, deliveries, counts. Gives
        the ids that were new to it. Raises IdConflict with the ids under which other content is stored."""

    def lanes(self) -> Script[int | None]:
        """The number of lanes as installed; None when nothing is installed."""

    def pseudonym_key(self) -> Script[bytes]:
        """What the pseudonyms of data subjects are made with, in this installation."""

    def audit(self, entry: AuditEntry) -> Script[None]:
        """Write a record of the audit trail."""

    def settle_handled(self, fence: Fence, delivery: Delivery, idle: float) -> Script[bool]:
        """Lock, delete and write the receipt of one delivery. False: it is busy, gone, or not ours."""
