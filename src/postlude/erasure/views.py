"""What is seen of erasures and rectifications."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from postlude.core.calls import PREFIX, Call, CallOperation, SubjectRef, Whom
from postlude.core.lifecycle import Status
from postlude.core.outcome import Fault
from postlude.ports.calls import StoredCall, StoredGroup


class ErasureResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a request did here, and what it left to be done. It holds once the caller's transaction commits."""

    subject_id: str
    group_id: UUID
    generation: int
    calls: tuple[UUID, ...]
    """Ids of the calls that were appended."""
    skipped_resolvers: tuple[str, ...]
    """Registered, but without a reference."""
    tables: Mapping[str, Mapping[str, int]]
    """Rows deleted, anonymised, retained or corrected, by table."""
    retained: tuple[str, ...] = ()
    """Columns that the law lets stay, with its reason."""

    @property
    def is_complete(self) -> bool:
        """There was nothing to call."""
        return not self.calls


class ErasureView(msgspec.Struct, frozen=True, kw_only=True):
    """A request about a subject and how far it is. `subject` is a pseudonym; who it is, only open calls know."""

    id: UUID
    subject: str
    operation: CallOperation
    generation: int
    status: str
    """open, overdue or completed."""
    open: int
    calls: int
    discarded: int
    created_at: datetime
    deadline: datetime
    completed_at: datetime | None


class SubjectStory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of the requests about one subject."""

    subject: str
    requests: list[ErasureView]
    calls: list[Call]


def call_of(stored: StoredCall) -> Call:
    whom = msgspec.json.decode(stored.secret, type=Whom) if stored.secret else Whom("", SubjectRef("", ""))
    waits = stored.status not in (Status.pending, Status.dead)
    return Call(
        entry_id=stored.entry_id,
        resolver=stored.destination.removeprefix(PREFIX),
        operation=stored.operation,
        ref=whom.ref,
        subject_id=whom.subject_id,
        status=stored.status,
        attempts=stored.attempts,
        last_error=error_of(stored.error),
        last_attempt_at=stored.attempted_at,
        next_attempt_at=stored.available_at if waits else None,
        enqueued_at=stored.created_at,
        subject=stored.subject,
    )


def requeued(dead: StoredCall) -> StoredCall:
    """As it was at the moment after: with a fresh budget, and due."""
    return msgspec.structs.replace(dead, status=Status.failed, attempts=0, error=None)


def error_of(stored: str | None) -> str | None:
    """The name of the error's class; never where, never a message."""
    return None if stored is None else msgspec.json.decode(stored, type=Fault).kind


def view_of(stored: StoredGroup) -> ErasureView:
    done = "completed" if stored.completed_at is not None else "open"
    return ErasureView(
        id=stored.id,
        subject=stored.subject,
        operation=stored.operation,
        generation=stored.generation,
        status="overdue" if stored.is_overdue else done,
        open=stored.open,
        calls=stored.calls,
        discarded=stored.discarded,
        created_at=stored.created_at,
        deadline=stored.deadline,
        completed_at=stored.completed_at,
    )
