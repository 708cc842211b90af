"""What follows from a signal, as data: the next instance, what to do about it, and what goes into its history."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec

from postlude.core.saga.instance import Instance


class Ignored(StrEnum):
    """Why a signal changed nothing. It is in the history all the same."""

    duplicate = "duplicate"
    """It says what is known."""
    late = "late"
    """The saga has gone on without it: after a deadline, a new begin, or on the way back."""
    after_end = "after_end"
    unexpected = "unexpected"
    """No step wants it."""
    crowded = "crowded"
    """Too many early signals wait already."""
    refused = "refused"
    """An operator's order that cannot be followed; `why` says why."""


class RunStep(msgspec.Struct, frozen=True):
    """Do it here: append the step's work, with its key."""

    step: str
    attempt: int
    key: str


class SendCommand(msgspec.Struct, frozen=True):
    """Send the participant its command, with the key."""

    step: str
    attempt: int
    key: str


class RunUndo(msgspec.Struct, frozen=True):
    """Undo it here. `result` is what it undoes; None when the outcome is not known."""

    step: str
    attempt: int
    key: str
    result: Any = None


class SendUndo(msgspec.Struct, frozen=True):
    """Send the participant the compensation."""

    step: str
    attempt: int
    key: str
    result: Any = None


class ScheduleDeadline(msgspec.Struct, frozen=True):
    """Bring `DeadlinePassed(step, attempt, undo)` at that time."""

    at: datetime
    step: str | None = None
    attempt: int = 0
    undo: bool = False


class CancelDeadline(msgspec.Struct, frozen=True):
    """The step's; None: the saga's. One that fires all the same is ignored."""

    step: str | None = None


class CancelDeadlines(msgspec.Struct, frozen=True):
    """All that are left: the saga has ended."""


class Emit(msgspec.Struct, frozen=True):
    """Append the saga-level event: on_completed, on_failed (at `compensated`), on_late."""

    what: Literal["completed", "failed", "late"]
    error: str | None = None
    signal: str | None = None


class ReportStuck(msgspec.Struct, frozen=True):
    """Tell the hook, the metric and the audit."""

    step: str | None
    code: str


FollowUp = (
    RunStep
    | SendCommand
    | RunUndo
    | SendUndo
    | ScheduleDeadline
    | CancelDeadline
    | CancelDeadlines
    | Emit
    | ReportStuck
)
Work = RunStep | SendCommand | RunUndo | SendUndo


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of history."""

    at: datetime
    what: str
    step: str | None = None
    attempt: int = 0
    detail: str | None = None
    """A code, an idempotency key, a name of a signal; for an order who gave it and why."""


class Decision(msgspec.Struct, frozen=True):
    """Apply all of it in one transaction, the instance guarded by `version - 1`; of an ignored one only the history
    (and follow-ups, of which there are none but `Emit("late")`)."""

    instance: Instance
    follow_ups: tuple[FollowUp, ...] = ()
    history: tuple[Record, ...] = ()
    ignored: Ignored | None = None
    why: str | None = None
