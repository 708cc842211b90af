"""The way back: one undo after another, in reverse order, each given what it undoes."""

from __future__ import annotations

from postlude.core.saga.decision import CancelDeadline, CancelDeadlines, Emit, RunUndo, SendUndo
from postlude.core.saga.definition import Way
from postlude.core.saga.draft import Draft
from postlude.core.saga.instance import Phase, SagaStatus

UNDER_WAY = (Phase.running, Phase.undoing)
TO_UNDO = (Phase.done, Phase.unknown)


def turn(draft: Draft, step: str, code: str) -> None:
    """Go back, because of that. What waits is over; what runs is let end, so that it is known what there is to undo."""
    if draft.turned:
        return
    draft.turned = True
    draft.error = f"{step}:{code}"
    draft.note("turned", step, 0, code)
    if draft.definition.deadline is not None:
        draft.follow(CancelDeadline())
    for index in draft.indexes(Phase.running):
        if draft.step(index).way is Way.wait:
            _drop(draft, index)
    draft.drop_early()


def recede(draft: Draft) -> None:
    """Begin the next undo, unless something is under way; end when nothing is left to undo."""
    if draft.indexes(*UNDER_WAY):
        return
    standing = [index for index in draft.indexes(*TO_UNDO) if draft.step(index).undo is not None]
    if not standing:
        _end(draft)
        return
    begin_undo(draft, max(standing, key=lambda index: _rank(draft, index)))


def begin_undo(draft: Draft, index: int, *, afresh: bool = False) -> None:
    """Intent, with a key of its own; an undo that said Err is given a new one."""
    step, before = draft.step(index), draft.states[index]
    attempt = before.undo_attempt + 1
    key = f"{draft.instance.id}:{step.name}:undo"
    if before.undo_key is not None:
        key = f"{key}:{attempt}" if afresh else before.undo_key
    draft.change(index, phase=Phase.undoing, undo_attempt=attempt, undo_key=key)
    draft.note("undo_begun", step.name, attempt, key)
    if step.undo is Way.command:
        draft.follow(SendUndo(step.name, attempt, key, before.result))
        draft.schedule(index, undo=True)
    else:
        draft.follow(RunUndo(step.name, attempt, key, before.result))


def _rank(draft: Draft, index: int) -> tuple[int, float, int]:
    """Later stages first; within a block what succeeded last, and what nobody knows of before all."""
    state = draft.states[index]
    order = state.order if state.phase is Phase.done else float("inf")
    return draft.definition.stage_of[index], order, index


def _drop(draft: Draft, index: int) -> None:
    """A wait is over. What can be undone may still come, so it is undone like a step nobody knows of."""
    step = draft.step(index)
    draft.change(index, phase=Phase.dropped if step.undo is None else Phase.unknown)
    draft.note("dropped", step.name)
    draft.unschedule(index)


def _end(draft: Draft) -> None:
    draft.status = SagaStatus.compensated
    draft.note("compensated", None, 0, draft.error)
    draft.follow(CancelDeadlines())
    draft.follow(Emit("failed", draft.error))
