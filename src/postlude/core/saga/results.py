"""How a step or an undo ended, set against what is known of it."""

from __future__ import annotations

from uuid import UUID

from postlude.core.saga.decision import Ignored
from postlude.core.saga.draft import Draft
from postlude.core.saga.forward import fail, succeed
from postlude.core.saga.instance import Phase, StepState
from postlude.core.saga.signal import OfStep, OfUndo, StepFailed, StepGaveUp, StepSucceeded, UndoFailed, UndoSucceeded

FAILED_UNDO = (Phase.undo_failed, Phase.undo_gave_up)


class Rejected(Exception):
    """The signal changes nothing."""

    def __init__(self, reason: Ignored) -> None:
        super().__init__(reason)
        self.reason = reason


def step_ended(draft: Draft, signal: OfStep, *, by: UUID | None = None) -> None:
    index = _index(draft, signal.step)
    if isinstance(signal, StepSucceeded):
        _require_wanted(draft, index)
        succeed(draft, index, signal.result, by=by, state=signal.state)
    else:
        _step_failed(draft, index, signal, by)


def undo_ended(draft: Draft, signal: OfUndo, *, by: UUID | None = None) -> None:
    index = _index(draft, signal.step)
    state = draft.states[index]
    if isinstance(signal, UndoSucceeded):
        if state.phase is Phase.undone:
            raise Rejected(Ignored.duplicate)
        if state.phase not in (Phase.undoing, *FAILED_UNDO):
            raise Rejected(Ignored.unexpected)
        draft.change(index, phase=Phase.undone, undo_by=by)
        draft.note("undone", state.name, state.undo_attempt)
        if state.phase is Phase.undoing:
            draft.unschedule(index, undo=True)
        return
    if state.phase is not Phase.undoing or signal.attempt < state.undo_attempt:
        raise Rejected(_stale_undo(state))
    said_so = isinstance(signal, UndoFailed)
    phase = Phase.undo_failed if said_so else Phase.undo_gave_up
    draft.change(index, phase=phase, code=signal.code, undo_by=by)
    draft.note("undo_failed" if said_so else "undo_gave_up", state.name, state.undo_attempt, signal.code)
    draft.unschedule(index, undo=True)


def succeeded_before(state: StepState) -> bool:
    return state.order > 0


def _require_wanted(draft: Draft, index: int) -> None:
    """A success is welcome, from whichever attempt, as long as it is not known and not undone: it has the same key,
    hence the same effect."""
    state = draft.states[index]
    if state.phase in (Phase.running, Phase.unknown, Phase.gave_up):
        return
    if state.phase is Phase.failed and not draft.turned:
        return
    if state.phase is Phase.ahead:
        raise Rejected(Ignored.unexpected)
    raise Rejected(Ignored.duplicate if succeeded_before(state) else Ignored.late)


def _step_failed(draft: Draft, index: int, signal: StepFailed | StepGaveUp, by: UUID | None) -> None:
    state = draft.states[index]
    known = isinstance(signal, StepFailed) or not signal.may_have_happened
    if state.phase is Phase.ahead:
        raise Rejected(Ignored.unexpected)
    if signal.attempt < state.attempt:
        raise Rejected(Ignored.late)
    unsure = state.phase in (Phase.unknown, Phase.gave_up)
    if state.phase is Phase.failed or (unsure and not known):
        raise Rejected(Ignored.duplicate)
    if state.phase is not Phase.running and not unsure:
        raise Rejected(Ignored.late)
    fail(draft, index, signal.code, known=known, by=by)


def _stale_undo(state: StepState) -> Ignored:
    if state.phase in FAILED_UNDO:
        return Ignored.duplicate
    return Ignored.late if state.undo_attempt else Ignored.unexpected


def _index(draft: Draft, name: str) -> int:
    index = draft.definition.index.get(name)
    if index is None:
        raise Rejected(Ignored.unexpected)
    return index
