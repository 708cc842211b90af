"""What sealing asks of a database, and what others ask of sealing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.core.statement import Script
from postlude.errors import CannotOpen
from postlude.ports.append import Prepared
from postlude.ports.audit import AuditEntry

Play = Callable[[Script[Any]], Awaitable[Any]]
"""Plays a script on the caller's handle, in the caller's transaction."""


class SubjectKey(msgspec.Struct, frozen=True):
    """The own key of a data subject, wrapped by a key of the ring."""

    subject: str
    key_id: str | None
    key: bytes | None
    is_shredded: bool = False


class SubjectScripts(Protocol):
    """Conversations on a caller's own handle. Subjects stand there by pseudonym."""

    def keys(self, subjects: Sequence[str]) -> Script[dict[str, SubjectKey]]:
        """Those that are known; also tombstones, which have no key."""

    def add(self, keys: Sequence[SubjectKey]) -> Script[dict[str, SubjectKey]]:
        """First keys of subjects, in the order of their pseudonyms. Gives what is stored then: somebody else may have
        been faster, or the subject may be shredded."""

    def shred(self, subject: str, entry: AuditEntry) -> Script[bool]:
        """Drop the key for good and audit it. False: it was shredded before, and nothing is written."""


class Subjects(Protocol):
    """The keys of data subjects, without a caller's handle."""

    async def keys(self, subjects: Sequence[str]) -> dict[str, SubjectKey]: ...

    async def wrapped_otherwise(self, key_id: str, *, after: str, limit: int) -> Sequence[SubjectKey]:
        """Keys that another key of the ring has wrapped, by pseudonym."""

    async def rewrap(self, keys: Sequence[tuple[SubjectKey, SubjectKey]], entry: AuditEntry) -> int:
        """Each as it was and as it becomes; one that is not as it was any more is left alone. One transaction with its
        audit record. Gives how many."""


class Resealed(msgspec.Struct, frozen=True):
    """An event with other bytes and the same content. It holds only if its header is still as it was read."""

    event_id: UUID
    was: str
    header: str
    payload: bytes
    digest: bytes


class Sealing(Protocol):
    """A stage between codec and store."""

    async def seal(self, play: Play, prepared: Sequence[Prepared], *, from_afar: bool = False) -> list[Prepared]:
        """Seal what is to be sealed. At most one statement, unless a data subject gets its first key. What came from
        elsewhere is never refused: a message about somebody who was shredded here is sealed for good."""

    async def open(self, events: Sequence[StoredEvent]) -> list[StoredEvent | CannotOpen]:
        """Each opened, or why it cannot be. At most one statement; none when nothing is sealed."""
