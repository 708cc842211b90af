"""Calls to foreign systems about a data subject: what is asked, what comes back, and what is seen of a call."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.event import TEXT, subject_text
from postlude.core.lifecycle import Status
from postlude.errors import ConfigurationError

PREFIX = "call:"
"""Of the destinations that are resolvers."""


class CallOperation(StrEnum):
    """What a call does. Stored for ever: members are added, never renamed."""

    erase = "erase"
    rectify = "rectify"

    @property
    def noun(self) -> str:
        """As in the names of audit actions: `erasure_completed`."""
        return "erasure" if self is CallOperation.erase else "rectification"


class SubjectRef(msgspec.Struct, frozen=True):
    """Who the subject is at one resolver: `kind` is the resolver's name, `value` its id there."""

    kind: str
    value: str
    extra: Mapping[str, Any] | None = None


class Correction(msgspec.Struct, frozen=True):
    """A corrected value, by category of personal data; which columns hold it, the data map knows."""

    category: str
    value: Any


class Erasure(msgspec.Struct, frozen=True):
    """The resolver erased it, or found nothing to erase."""

    already_absent: bool = False


class Schedule(msgspec.Struct, frozen=True):
    """The vendor only lets data expire: either when, or that it is gone by now."""

    expires_at: datetime | None = None
    already_absent: bool = False

    def __post_init__(self) -> None:
        if (self.expires_at is None) != self.already_absent:
            raise ValueError("a Schedule has either expires_at or already_absent=True")
        if self.expires_at is not None and self.expires_at.utcoffset() is None:
            raise ValueError("expires_at needs a time zone")


class Whom(msgspec.Struct, frozen=True):
    """Who a call is about: the secret that goes when the call is over."""

    subject_id: str
    ref: SubjectRef


class Unverified(msgspec.Struct, frozen=True):
    """What a verification needs when its call is over: the pseudonym for the record, and who the subject was there."""

    subject: str
    ref: SubjectRef


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call, open or abandoned, as an operator sees it. `entry_id` is also its idempotency key."""

    entry_id: UUID
    resolver: str
    operation: CallOperation
    ref: SubjectRef
    subject_id: str
    status: Status
    attempts: int
    last_error: str | None
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    enqueued_at: datetime
    subject: str
    """The pseudonym, which anybody may know. Whoever may not know more sees no `subject_id` and no `ref`."""


class AbandonedSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A call that will not be made again until somebody decides. The error is the name of a class, never a message."""

    attempts: int
    entry_id: UUID
    error: str
    operation: CallOperation
    resolver: str
    subject_id: str


def subject_id_text(subject_id: Any) -> str:
    """Whoever gives the person instead of its id would erase nobody, and be told that it is done."""
    if isinstance(subject_id, bool) or not isinstance(subject_id, str | int | UUID):
        raise ConfigurationError(
            f"a subject id is no {type(subject_id).__name__}", hint="Give text, a whole number or a UUID."
        )
    return subject_text(subject_id)


def is_text(given: object) -> bool:
    """Some text, and such as every database can keep."""
    return isinstance(given, str) and bool(given) and TEXT.fullmatch(given) is not None
