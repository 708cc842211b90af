"""Where one run of a saga stands: everything a decision needs, and everything that is kept of it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.saga.definition import Definition, Step

MAX_EARLY = 32
"""Signals that may wait in an instance for the step that wants them."""


class SagaStatus(StrEnum):
    running = "running"
    compensating = "compensating"
    completed = "completed"
    compensated = "compensated"
    stuck = "stuck"

    @property
    def is_end(self) -> bool:
        """`stuck` is no end: an operator's decision follows."""
        return self in (SagaStatus.completed, SagaStatus.compensated)


class Phase(StrEnum):
    """Where a step stands."""

    ahead = "ahead"
    running = "running"
    """Begun, sent, or waited for."""
    done = "done"
    failed = "failed"
    """It said so: nothing of it happened."""
    unknown = "unknown"
    """It may have happened: its deadline passed or it gave up. It is undone like one that did."""
    gave_up = "gave_up"
    """It may have happened and there is no way back: an operator is needed."""
    dropped = "dropped"
    """A wait that is over because the saga turned back."""
    undoing = "undoing"
    undone = "undone"
    undo_failed = "undo_failed"
    """It said so: the effect stands, an operator is needed."""
    undo_gave_up = "undo_gave_up"
    """Nobody knows: an operator is needed."""


class StepState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of an instance. The keys are for whoever does the work, so that a repetition has no second effect."""

    name: str
    shape: str
    phase: Phase = Phase.ahead
    attempt: int = 0
    """How often it was begun: once, and again at an operator's word. Retries of one begin are the runtime's."""
    key: str | None = None
    result: Any = None
    code: str | None = None
    """Why it failed, or its undo."""
    by: UUID | None = None
    """The event that ended it."""
    order: int = 0
    """The place among the steps that succeeded."""
    undo_attempt: int = 0
    undo_key: str | None = None
    undo_by: UUID | None = None


class Early(msgspec.Struct, frozen=True):
    """An event that came before the step that waits for it."""

    event_id: UUID
    type: str
    value: Any = None
    code: str | None = None


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `state` is a plain saga's state, or the trigger of a typed one; results and state are JSON values."""

    id: UUID
    name: str
    process_id: str
    generation: int = 1
    status: SagaStatus = SagaStatus.running
    version: int = 0
    """0 until the first decision; the row is guarded by it."""
    hash: str
    steps: tuple[StepState, ...]
    state: Any = None
    error: str | None = None
    """What turned it back, as "step:Code"."""
    turned: bool = False
    """Has compensation begun? Never goes back to false."""
    held: str | None = None
    """A signal of it died: why."""
    early: tuple[Early, ...] = ()
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None

    def __getitem__(self, name: str) -> StepState:
        return next(step for step in self.steps if step.name == name)


def new_instance(  # noqa: PLR0917 - a row's worth of facts
    definition: Definition, id: UUID, process_id: str, generation: int, state: Any, now: datetime
) -> Instance:
    """An instance before its first signal, which is `Started`."""
    return Instance(
        id=id,
        name=definition.name,
        process_id=process_id,
        generation=generation,
        hash=definition.hash,
        steps=tuple(map(state_of, definition.steps)),
        state=state,
        created_at=now,
        updated_at=now,
    )


def state_of(step: Step) -> StepState:
    return StepState(step.name, step.shape)


def next_generation(previous: Instance | None) -> int | None:
    """The generation a new run of a process id would have; None: the one before has not ended."""
    if previous is None:
        return 1
    return previous.generation + 1 if previous.status.is_end else None
