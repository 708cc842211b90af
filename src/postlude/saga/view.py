"""A saga as it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.saga.decision import Record
from postlude.core.saga.explain import explain
from postlude.core.saga.instance import Instance, SagaStatus
from postlude.core.saga.plan import fit, misfit
from postlude.saga.compiled import Compiled


class SagaView(msgspec.Struct, frozen=True, kw_only=True):
    """`step` is what it is at, `waits_for` what would move it on, `remaining` what is left to do or to undo."""

    id: UUID
    name: str
    process_id: str
    generation: int
    status: SagaStatus
    step: str | None
    remaining: tuple[str, ...]
    waits_for: tuple[str, ...]
    version: int
    attempts: int
    """How often the step it is at was begun."""
    error: str | None
    """"step:Code"."""
    state: Any
    """A plain saga's state, or what started a typed one, as JSON values."""
    history: tuple[Record, ...]
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None

    @property
    def has_ended(self) -> bool:
        return self.status.is_end


def view_of(made: Compiled | None, instance: Instance, history: Sequence[Record]) -> SagaView:
    """Code that does not know the saga, or cannot continue it, still shows what is stored."""
    step: str | None = None
    waits: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    reason = "the code has no saga of this name" if made is None else misfit(made.definition, instance)
    if made is not None and reason is None:
        explained = explain(made.definition, fit(made.definition, instance))
        step, waits, remaining = explained.step, explained.waits_for, explained.remaining
    elif not instance.status.is_end:
        waits = (f"code that can continue it: {reason}",)
    at = None if step is None else next((one for one in instance.steps if one.name == step), None)
    return SagaView(
        id=instance.id,
        name=instance.name,
        process_id=instance.process_id,
        generation=instance.generation,
        status=instance.status,
        step=step,
        remaining=remaining,
        waits_for=waits,
        version=instance.version,
        attempts=0 if at is None else at.undo_attempt or at.attempt,
        error=instance.error,
        state=instance.state,
        history=tuple(history),
        created_at=instance.created_at,
        updated_at=instance.updated_at,
        ended_at=instance.ended_at,
    )
