"""What redaction asks of a database. The rules of `postlude.ports.store` hold here too.

A page is one transaction. Lock order: events by id, deliveries by seq, groups by id, sagas by id, audit; only for events
is anybody waited for. What somebody else holds is under way, and waits for another page.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

import msgspec

from postlude.core.statement import Script

FIRST = UUID(int=0)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Who is redacted, why, and what becomes of open deliveries: `discards` or they are waited for."""

    subject_id: str
    subject: str
    """The pseudonym."""
    discards: bool
    actor: str
    reason: str


class RedactedPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and what must finish first: deliveries by seq, sagas by id."""

    last: UUID | None
    """The last event or saga that was looked at; None: there was none."""
    events: int = 0
    deliveries: int = 0
    sagas: int = 0
    waiting_deliveries: frozenset[int] = frozenset()
    waiting_sagas: frozenset[UUID] = frozenset()

    @property
    def has_changed(self) -> bool:
        return bool(self.events or self.deliveries or self.sagas)


class RedactionScripts(Protocol):
    """Conversations in a transaction, each with its audit record when something changed."""

    def events(self, wanted: Wanted, *, after: UUID, limit: int) -> Script[RedactedPage]:
        """Events that name the subject, by id, with their dead letters and the sagas they belong to. A redacted event
        keeps what it is, when and why it came, and nothing of what it says."""

    def sagas(self, wanted: Wanted, *, limit: int) -> Script[RedactedPage]:
        """Sagas whose process id is the subject's id. Each is seen once: a redacted one has another id."""

    def remembered(self, wanted: Wanted, *, after: UUID, limit: int) -> Script[RedactedPage]:
        """Sagas that outlived their events, by id: retention has remembered whom they are about. That is forgotten with
        what they knew."""

    def rectifications(self, wanted: Wanted) -> Script[RedactedPage]:
        """Calls that correct something of the subject elsewhere and are not over: abandoned, they would keep who it is."""

    def shred(self, wanted: Wanted) -> Script[bool]:
        """Drop the subject's own key. False: there was none."""
