"""What calls and erasure ask of a database. The rules of `postlude.ports.store` hold here too.

A group counts its open calls, dead ones too; the database itself ends calls and completes groups, by triggers, so that
no way a call can end forgets it. Lock order: the subject's row, deliveries by seq, groups by id, audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from postlude.core.calls import CallOperation
from postlude.core.delivery import Delivery, Fence
from postlude.core.lifecycle import Status
from postlude.core.statement import Script
from postlude.ports.append import Prepared
from postlude.ports.audit import AuditEntry

SUBJECT, CORRECTIONS, HORIZON = "subject", "corrections", "horizon"
VERIFICATION = "verification"
"""Parts of a call's secret. The last one is there when the call is over and its verification is not."""


class NewGroup(msgspec.Struct, frozen=True):
    """A request about a subject. `tells`: somebody wants an event when it is complete."""

    id: UUID
    subject: str
    operation: CallOperation
    deadline_seconds: float
    tells: bool


class NewCall(msgspec.Struct, frozen=True):
    """A call of a group: its event and delivery, and its secret by part."""

    prepared: Prepared
    secrets: Mapping[str, bytes]


class Secret(msgspec.Struct, frozen=True):
    """A part of a call's secret, as it is stored."""

    entry_id: UUID
    part: str
    content: bytes


class StoredCall(msgspec.Struct, frozen=True, kw_only=True):
    """An open call as it is stored."""

    entry_id: UUID
    destination: str
    operation: CallOperation
    subject: str
    secret: bytes | None
    status: Status
    attempts: int
    error: str | None
    attempted_at: datetime | None
    available_at: datetime
    created_at: datetime


class StoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A request and how far it is."""

    id: UUID
    subject: str
    operation: CallOperation
    generation: int
    open: int
    calls: int
    discarded: int
    created_at: datetime
    deadline: datetime
    completed_at: datetime | None
    is_overdue: bool
    """Past its deadline, not complete, and no later request of its kind is complete."""


class CallScripts(Protocol):
    """Conversations to be held on a caller's own handle, in the caller's transaction."""

    def lock_subject(self, subject: str, *, erases: bool) -> Script[None]:
        """Wait for other requests about this subject; an erasure leaves its mark."""

    def knows_subject(self, subject_id: str, subject: str) -> Script[bool]:
        """Do our own tables hold something of this subject: events, a key, a saga of its id or one that outlived its
        events, a rectification that is not over?"""

    def open_group(self, group: NewGroup, calls: Sequence[NewCall]) -> Script[int]:
        """Write a group and its calls; without calls it is complete at once. Gives its generation."""

    def park(
        self, fence: Fence, delivery: Delivery, *, until: datetime, least: float, horizon: bytes
    ) -> Script[datetime | None]:
        """Schedule a call that is under way, with a fresh budget, not before so many seconds from now. Gives when;
        None: it is not ours any more."""

    def append_verification(self, fence: Fence, delivery: Delivery, content: bytes) -> Script[None]:
        """After the settle of a call, in its transaction: the same event is delivered once more, in no group and in
        no order, with this for its secret."""


class Calls(Protocol):
    """What is read and done beside callers' transactions."""

    async def pseudonym_key(self) -> bytes:
        """What the pseudonyms of data subjects are made with."""

    async def secrets(self, entry_id: UUID) -> Mapping[str, bytes]:
        """Of an open call or verification, by part; empty when both are over."""

    async def secrets_but(self, prefix: bytes, *, after: Secret | None, limit: int) -> list[Secret]:
        """Those that do not begin so, by id and part; not horizons, which tell nothing of anybody."""

    async def reseal(self, secrets: Sequence[tuple[Secret, Secret]], entry: AuditEntry) -> int:
        """Each as it was and as it becomes; one that is not as it was any more is left alone. One transaction with its
        audit record. Gives how many."""

    async def calls(
        self,
        *,
        status: Status | None = None,
        subject: str | None = None,
        ids: Sequence[UUID] | None = None,
        limit: int,
    ) -> list[StoredCall]:
        """Open calls: scheduled ones by time, others by age, then by id."""

    async def groups(
        self, *, subject: str | None, is_overdue: bool, limit: int, after: UUID | None = None
    ) -> list[StoredGroup]:
        """Overdue ones by deadline, else the newest first."""

    async def counts(self) -> dict[str, int]:
        """Calls by status or outcome; what does not occur may be missing."""

    async def overdue_counts(self) -> tuple[int, int]:
        """Groups that are overdue, and the open calls in them."""

    async def requeue(self, ids: Sequence[UUID], *, actor: str, reason: str) -> list[UUID]:
        """Dead erasures are due now with a fresh budget, each with its audit record; others are skipped."""
