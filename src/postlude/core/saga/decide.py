"""The orchestration: what follows from a signal. No I/O, no clock; the same arguments give the same decision."""

from __future__ import annotations

from datetime import datetime, timedelta

from postlude.core.saga.arrivals import arrived
from postlude.core.saga.compensate import turn
from postlude.core.saga.decision import (
    Decision,
    Emit,
    Ignored,
    Record,
    RunUndo,
    ScheduleDeadline,
    SendUndo,
    Work,
)
from postlude.core.saga.definition import Definition, Way
from postlude.core.saga.draft import Draft
from postlude.core.saga.forward import fail, proceed
from postlude.core.saga.instance import Instance, Phase
from postlude.core.saga.orders import Refused, obey
from postlude.core.saga.results import Rejected, step_ended, succeeded_before, undo_ended
from postlude.core.saga.signal import (
    Cancel,
    Compensate,
    DeadlinePassed,
    EventArrived,
    RetryStep,
    Signal,
    SignalDied,
    SkipStep,
    Started,
    StepFailed,
    StepGaveUp,
    StepSucceeded,
    UndoFailed,
    UndoGaveUp,
    UndoSucceeded,
)

DEADLINE = "Deadline"
SAGA_DEADLINE = "SagaDeadline"


def decide(definition: Definition, instance: Instance, signal: Signal, now: datetime) -> Decision:
    """What follows from the signal. The instance must fit the definition (`plan.fit`)."""
    if instance.status.is_end:
        return _after_end(definition, instance, signal, now)
    draft = Draft(definition, instance, now)
    try:
        _take(draft, signal)
    except Rejected as rejected:
        return _ignored(instance, signal, now, rejected.reason)
    except Refused as refused:
        return _ignored(instance, signal, now, Ignored.refused, str(refused))
    proceed(draft)
    return draft.decision()


def is_wanted(instance: Instance, work: Work) -> bool:
    """Ask before doing the work: has the saga gone on without it? Then there is nothing to do and nothing to say."""
    state = instance[work.step]
    if isinstance(work, RunUndo | SendUndo):
        return state.phase is Phase.undoing and state.undo_attempt == work.attempt
    return state.phase is Phase.running and state.attempt == work.attempt


def _take(draft: Draft, signal: Signal) -> None:
    """Write the signal down in the draft, or say why not."""
    match signal:
        case Started():
            _start(draft)
        case StepSucceeded() | StepFailed() | StepGaveUp():
            step_ended(draft, signal)
        case UndoSucceeded() | UndoFailed() | UndoGaveUp():
            undo_ended(draft, signal)
        case EventArrived():
            arrived(draft, signal)
        case DeadlinePassed():
            _deadline(draft, signal)
        case SignalDied():
            draft.held = signal.code
            draft.note("signal_died", None, 0, signal.code)
        case RetryStep() | SkipStep() | Compensate() | Cancel():
            obey(draft, signal)


def _start(draft: Draft) -> None:
    if draft.instance.version:
        raise Rejected(Ignored.duplicate)
    draft.note("started")
    if draft.definition.deadline is not None:
        draft.follow(ScheduleDeadline(draft.now + timedelta(seconds=draft.definition.deadline)))


def _deadline(draft: Draft, signal: DeadlinePassed) -> None:
    if signal.step is None:
        if draft.turned or draft.is_past_pivot:
            raise Rejected(Ignored.late)
        turn(draft, draft.current(), SAGA_DEADLINE)
        return
    index = draft.definition.index.get(signal.step)
    if index is None:
        raise Rejected(Ignored.unexpected)
    step, state = draft.step(index), draft.states[index]
    if signal.undo:
        undo_ended(draft, UndoGaveUp(signal.step, signal.attempt, DEADLINE))
    elif state.phase is Phase.running and state.attempt == signal.attempt:
        # Nothing happens in a wait: what did not come did not happen, unless it is something that can be undone.
        fail(draft, index, DEADLINE, known=step.way is Way.wait and step.undo is None)
    else:
        raise Rejected(Ignored.late)


def _after_end(definition: Definition, instance: Instance, signal: Signal, now: datetime) -> Decision:
    if isinstance(signal, RetryStep | SkipStep | Compensate | Cancel):
        return _ignored(instance, signal, now, Ignored.refused, f"the saga is {instance.status} already")
    decision = _ignored(instance, signal, now, Ignored.after_end)
    if not definition.reports_late or not _is_news(instance, signal):
        return decision
    told = Emit("late", instance.error, _name(signal))
    return Decision(instance, (told,), decision.history, Ignored.after_end)


def _is_news(instance: Instance, signal: Signal) -> bool:
    """Does it tell of something the saga does not know?"""
    match signal:
        case EventArrived(event_id=event_id):
            return all(event_id not in (state.by, state.undo_by) for state in instance.steps)
        case StepSucceeded(step=name):
            return not any(succeeded_before(state) for state in instance.steps if state.name == name)
        case _:
            return False


def _ignored(instance: Instance, signal: Signal, now: datetime, reason: Ignored, why: str | None = None) -> Decision:
    what = "late" if reason is Ignored.after_end else reason.value
    step: str | None = getattr(signal, "step", None)
    record = Record(now, what, step, getattr(signal, "attempt", 0), why or _name(signal))
    return Decision(instance, (), (record,), reason, why)


def _name(signal: Signal) -> str:
    return signal.type if isinstance(signal, EventArrived) else type(signal).__name__
