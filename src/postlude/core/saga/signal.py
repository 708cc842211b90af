"""What can reach an instance."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec


class Started(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """The first signal of every instance."""


class StepSucceeded(msgspec.Struct, frozen=True, tag_field="signal", tag=True, omit_defaults=True):
    """`state`, if given, replaces the state of a plain saga."""

    step: str
    attempt: int
    result: Any = None
    state: Any = msgspec.UNSET


class StepFailed(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """The step said Err: nothing of it happened."""

    step: str
    attempt: int
    code: str


class StepGaveUp(msgspec.Struct, frozen=True, tag_field="signal", tag=True, omit_defaults=True):
    """All retries are used, or the work was rejected. A transactional step has certainly not happened."""

    step: str
    attempt: int
    code: str
    may_have_happened: bool = True


class UndoSucceeded(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    step: str
    attempt: int


class UndoFailed(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """The undo said Err: the effect stands."""

    step: str
    attempt: int
    code: str


class UndoGaveUp(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """The undo's retries are used."""

    step: str
    attempt: int
    code: str


class EventArrived(msgspec.Struct, frozen=True, tag_field="signal", tag=True, omit_defaults=True):
    """An awaited event or a participant's reply. `answers` is the key it echoes, where the participant does that;
    `code` is what a failure is called in the error, the type unless said."""

    event_id: UUID
    type: str
    value: Any = None
    answers: str | None = None
    code: str | None = None


class DeadlinePassed(msgspec.Struct, frozen=True, tag_field="signal", tag=True, omit_defaults=True):
    """Of a step, of its undo, or (None) of the saga."""

    step: str | None = None
    attempt: int = 0
    undo: bool = False


class SignalDied(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """A signal of this instance became a dead letter."""

    code: str


class RetryStep(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """An operator: begin again what failed; a named step also when it runs and nothing is heard of it."""

    actor: str
    reason: str
    step: str | None = None


class SkipStep(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """An operator: take the step for done with this value, or its undo for done."""

    actor: str
    reason: str
    step: str | None = None
    value: Any = None


class Compensate(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """An operator: go back. Allowed before the pivot, and wherever the saga is stuck on its way forward."""

    actor: str
    reason: str


class Cancel(msgspec.Struct, frozen=True, tag_field="signal", tag=True):
    """Go back; refused from the pivot on."""

    actor: str
    reason: str


OfStep = StepSucceeded | StepFailed | StepGaveUp
OfUndo = UndoSucceeded | UndoFailed | UndoGaveUp
Order = RetryStep | SkipStep | Compensate | Cancel
Signal = Started | OfStep | OfUndo | EventArrived | DeadlinePassed | SignalDied | Order
