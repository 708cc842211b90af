"""What an operator may order, and the sentences that refuse it."""

from __future__ import annotations

from postlude.core.saga.compensate import begin_undo, turn
from postlude.core.saga.definition import Way
from postlude.core.saga.draft import Draft
from postlude.core.saga.forward import begin, succeed
from postlude.core.saga.instance import Phase, SagaStatus
from postlude.core.saga.signal import Cancel, Compensate, Order, RetryStep, SkipStep

OF_UNDO = (Phase.undoing, Phase.undo_failed, Phase.undo_gave_up)
SAID_SO = (Phase.failed, Phase.undo_failed)


class Refused(Exception):
    """An order that cannot be followed."""


def obey(draft: Draft, order: Order) -> None:
    match order:
        case RetryStep():
            _retry(draft, order)
        case SkipStep():
            _skip(draft, order)
        case Compensate() | Cancel():
            _go_back(draft, order)
    draft.held = None


def _retry(draft: Draft, order: RetryStep) -> None:
    if order.step is None and draft.status is not SagaStatus.stuck:
        raise Refused("the saga is not stuck: name the step that is to begin again")
    for index in _targets(draft, order):
        again = begin_undo if draft.phase(index) in OF_UNDO else begin
        _order(draft, "retry", order, index)
        again(draft, index, afresh=draft.phase(index) in SAID_SO)
    if not draft.history:
        _order(draft, "retry", order)


def _skip(draft: Draft, order: SkipStep) -> None:
    targets = _targets(draft, order)
    if len(targets) != 1:
        names = ", ".join(draft.step(index).name for index in targets)
        raise Refused(f"name the step to skip: {names}" if targets else "no step needs to be skipped")
    index = targets[0]
    if draft.phase(index) is Phase.undoing or (
        draft.phase(index) is Phase.running and draft.step(index).way is Way.handler
    ):
        raise Refused(f"{draft.step(index).name} is under way: skip it when it has given up")
    _order(draft, "skip", order, index)
    if draft.phase(index) in OF_UNDO:
        draft.change(index, phase=Phase.undone)
        draft.note("undone", draft.step(index).name, draft.states[index].undo_attempt, "by hand")
    else:
        succeed(draft, index, order.value)


def _go_back(draft: Draft, order: Compensate | Cancel) -> None:
    if draft.turned:
        raise Refused("the saga is on its way back: retry or skip what it is stuck on")
    forced = isinstance(order, Compensate) and draft.status is SagaStatus.stuck
    if draft.is_past_pivot and not forced:
        raise Refused("the pivot has begun: from there a saga only goes forward")
    trouble = next(draft.troubles(), None)
    _order(draft, "cancel" if isinstance(order, Cancel) else "compensate", order)
    for index in draft.indexes(Phase.gave_up):
        draft.change(index, phase=Phase.unknown)
    if trouble is None:
        turn(draft, draft.current(), "Cancelled")
    else:
        turn(draft, trouble.name, trouble.code or "Cancelled")


def _targets(draft: Draft, order: RetryStep | SkipStep) -> list[int]:
    """The steps an order is for: the one it names, or all that need an operator."""
    troubled = [draft.definition.index[state.name] for state in draft.troubles()]
    if order.step is None:
        return troubled
    index = draft.definition.index.get(order.step)
    if index is None:
        known = ", ".join(step.name for step in draft.definition.steps)
        raise Refused(f"there is no step {order.step}: the steps are {known}")
    if index not in troubled and draft.phase(index) not in (Phase.running, Phase.undoing):
        raise Refused(f"{order.step} is {draft.phase(index)}: it has not failed and is not under way")
    return [index]


def _order(draft: Draft, word: str, order: Order, index: int | None = None) -> None:
    step = None if index is None else draft.step(index).name
    draft.note(word, step, 0, f"{order.actor}: {order.reason}")
