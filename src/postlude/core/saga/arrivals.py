"""Events that reach an instance: whose they are, and what becomes of those that come too early."""

from __future__ import annotations

from postlude.core.saga.decision import Ignored
from postlude.core.saga.definition import Step, Way
from postlude.core.saga.draft import Draft
from postlude.core.saga.instance import MAX_EARLY, Early, Phase, StepState
from postlude.core.saga.results import Rejected, step_ended, undo_ended
from postlude.core.saga.signal import EventArrived, StepFailed, StepSucceeded, UndoFailed, UndoSucceeded

OPEN = (Phase.running, Phase.gave_up, Phase.unknown, Phase.failed)
"""In the order in which they are asked. One that failed is open as long as the saga has not turned back."""
OPEN_UNDO = (Phase.undoing, Phase.undo_failed, Phase.undo_gave_up)


def arrived(draft: Draft, signal: EventArrived) -> None:
    """The first step that runs takes it, then one whose outcome is not known; a wait that is ahead has it kept."""
    if _is_known(draft, signal):
        raise Rejected(Ignored.duplicate)
    for index in draft.indexes(*OPEN_UNDO):
        if _ends_undo(draft, index, signal):
            return
    for index in sorted(draft.indexes(*OPEN), key=lambda index: OPEN.index(draft.phase(index))):
        if _ends_step(draft, index, signal):
            return
    if _is_awaited(draft, signal):
        _keep(draft, signal)
        return
    raise Rejected(_why_not(draft, signal))


def _is_known(draft: Draft, signal: EventArrived) -> bool:
    ended = any(signal.event_id in (state.by, state.undo_by) for state in draft.states)
    return ended or any(signal.event_id == early.event_id for early in draft.early)


def _ends_undo(draft: Draft, index: int, signal: EventArrived) -> bool:
    step, state = draft.step(index), draft.states[index]
    if step.undo is not Way.command or not _answers(signal, state.undo_key):
        return False
    if signal.type == step.replies.compensated:
        undo_ended(draft, UndoSucceeded(step.name, state.undo_attempt), by=signal.event_id)
        return True
    if signal.type == step.replies.compensation_failed:
        undo_ended(draft, UndoFailed(step.name, state.undo_attempt, signal.code or signal.type), by=signal.event_id)
        return True
    return False


def _ends_step(draft: Draft, index: int, signal: EventArrived) -> bool:
    step, state = draft.step(index), draft.states[index]
    if not _is_reply(step, signal) or not _answers(signal, state.key):
        return False
    if signal.type == step.replies.success:
        step_ended(draft, StepSucceeded(step.name, state.attempt, signal.value), by=signal.event_id)
    else:
        step_ended(draft, StepFailed(step.name, state.attempt, signal.code or signal.type), by=signal.event_id)
    return True


def _is_awaited(draft: Draft, signal: EventArrived) -> bool:
    """Only waits can have an early signal: nobody replies to a command that was not sent."""
    return not draft.turned and any(
        draft.step(index).way is Way.wait and _is_reply(draft.step(index), signal)
        for index in draft.indexes(Phase.ahead)
    )


def _keep(draft: Draft, signal: EventArrived) -> None:
    if len(draft.early) >= MAX_EARLY:
        raise Rejected(Ignored.crowded)
    draft.early.append(Early(signal.event_id, signal.type, signal.value, signal.code))
    draft.note("early", None, 0, signal.type)


def _why_not(draft: Draft, signal: EventArrived) -> Ignored:
    wanted = [
        state
        for step, state in zip(draft.definition.steps, draft.states, strict=True)
        if _concerns(step, signal) and state.phase is not Phase.ahead
    ]
    if not wanted and not (draft.turned and any(_concerns(step, signal) for step in draft.definition.steps)):
        return Ignored.unexpected
    return Ignored.duplicate if any(_says_the_same(state) for state in wanted) else Ignored.late


def _says_the_same(state: StepState) -> bool:
    return state.phase in (Phase.done, Phase.undone) and (state.order > 0 or state.phase is Phase.undone)


def _concerns(step: Step, signal: EventArrived) -> bool:
    undone = step.undo is Way.command and signal.type in (step.replies.compensated, step.replies.compensation_failed)
    return _is_reply(step, signal) or undone


def _is_reply(step: Step, signal: EventArrived) -> bool:
    return step.way is not Way.handler and signal.type in (step.replies.success, step.replies.failure)


def _answers(signal: EventArrived, key: str | None) -> bool:
    return signal.answers is None or signal.answers == key
