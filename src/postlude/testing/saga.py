"""Drive a saga by hand, with a clock that you move and no database.

    given(PlaceOrder).when(ok("reserve"), err("charge", "Declined"), undo_ok("reserve")).then(
        status="compensated", error="charge:Declined", told=["failed"]
    )

What happens is what you say, in the order you say it: a result after its deadline is late, an event before its wait is
early, `twice` makes a duplicate, an older `attempt` one that was overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import msgspec

from postlude.core.event import spec_of
from postlude.core.saga.decide import decide
from postlude.core.saga.decision import (
    CancelDeadline,
    CancelDeadlines,
    Decision,
    Emit,
    FollowUp,
    Record,
    ReportStuck,
    ScheduleDeadline,
)
from postlude.core.saga.definition import Definition, Way
from postlude.core.saga.explain import explain
from postlude.core.saga.instance import Instance, Phase, StepState, new_instance
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
from postlude.saga.compiled import Declared, compiled

SAGA = UUID(int=1)
MORNING = datetime(2030, 1, 1, 8, tzinfo=UTC)
ACTOR = ("tester", "a test")


class Scenario:
    """One instance and what became of it. `decisions` holds every one, the last last."""

    def __init__(self, definition: Definition, state: Any, process_id: str) -> None:
        self.definition = definition
        self.now = MORNING
        self.instance: Instance = new_instance(definition, SAGA, process_id, 1, state, self.now)
        self.decisions: list[Decision] = []
        self.told: list[str] = []
        self.stuck: list[str] = []
        self.deadlines: list[ScheduleDeadline] = []
        self.events = 0
        self.signals: list[Signal] = []

    @property
    def history(self) -> list[Record]:
        return [record for decision in self.decisions for record in decision.history]

    @property
    def work(self) -> list[FollowUp]:
        """What the last decision asks for."""
        return list(self.decisions[-1].follow_ups)

    def tell(self, signal: Signal) -> Decision:
        """The signal reaches the instance."""
        decision = decide(self.definition, self.instance, signal, self.now)
        self.instance = decision.instance
        self.decisions.append(decision)
        self.signals.append(signal)
        for item in decision.follow_ups:
            self._follow(item)
        return decision

    def when(self, *happenings: Happening) -> Scenario:
        for happening in happenings:
            happening(self)
        return self

    def then(
        self,
        *,
        status: str | None = None,
        error: str | None = None,
        under_way: Sequence[str] | None = None,
        undone: Sequence[str] | None = None,
        told: Sequence[str] | None = None,
        ignored: str | None = None,
    ) -> Scenario:
        """What is said must hold; what is not said may be anything. `undone` is in the order of the undos, `ignored`
        speaks of the last signal."""
        busy = [state.name for state in self.instance.steps if state.phase in (Phase.running, Phase.undoing)]
        found: dict[str, tuple[Any, Any]] = {
            "status": (status, str(self.instance.status)),
            "error": (error, self.instance.error),
            "under_way": (None if under_way is None else sorted(under_way), sorted(busy)),
            "undone": (None if undone is None else list(undone), self._undone()),
            "told": (None if told is None else list(told), self.told),
            "ignored": (ignored, self.decisions[-1].ignored),
        }
        wrong = [f"{name} is {is_!r}, not {said!r}" for name, (said, is_) in found.items() if said not in (None, is_)]
        if wrong:
            raise AssertionError("; ".join(wrong) + "\n" + self._story())
        return self

    def _undone(self) -> list[str]:
        return [record.step for record in self.history if record.what == "undone" and record.step is not None]

    def _story(self) -> str:
        lines = [f"  {one.what} {one.step or ''} {one.detail or ''}".rstrip() for one in self.history]
        waits = "; ".join(explain(self.definition, self.instance).waits_for)
        return "\n".join([*lines, f"  waits for: {waits or 'nothing'}"])

    def _follow(self, item: FollowUp) -> None:
        match item:
            case ScheduleDeadline():
                self.deadlines.append(item)
            case CancelDeadline(step=step):
                self.deadlines = [deadline for deadline in self.deadlines if deadline.step != step]
            case CancelDeadlines():
                self.deadlines = []
            case Emit(what=what):
                self.told.append(what)
            case ReportStuck(step=step, code=code):
                self.stuck.append(f"{step}:{code}")
            case _:
                pass


Happening = Callable[[Scenario], None]


def given(saga: Declared | Definition, state: Any = None, *, process_id: str = "1") -> Scenario:
    """An instance that has just started."""
    definition = saga if isinstance(saga, Definition) else compiled(saga).definition
    scenario = Scenario(definition, msgspec.to_builtins(state), process_id)
    scenario.tell(Started())
    return scenario


def ok(step: str, value: Any = None, *, attempt: int | None = None) -> Happening:
    """The step succeeds: its handler, its participant's reply, or what it waited for."""

    def happen(scenario: Scenario) -> None:
        declared = scenario.definition[step]
        if declared.way is not Way.handler:
            _arrive(scenario, declared.replies.success, value)
        else:
            scenario.tell(StepSucceeded(step, attempt or _state(scenario, step).attempt, msgspec.to_builtins(value)))

    return happen


def err(step: str, code: str = "Err", *, attempt: int | None = None) -> Happening:
    """The step, its participant, or whoever was waited for says that it cannot."""

    def happen(scenario: Scenario) -> None:
        declared = scenario.definition[step]
        if declared.way is not Way.handler:
            _arrive(scenario, declared.replies.failure, None, code)
        else:
            scenario.tell(StepFailed(step, attempt or _state(scenario, step).attempt, code))

    return happen


def gives_up(step: str, code: str = "Exhausted", *, may_have_happened: bool = True) -> Happening:
    return lambda scenario: _tell(scenario, StepGaveUp(step, _state(scenario, step).attempt, code, may_have_happened))


def undo_ok(step: str) -> Happening:
    def happen(scenario: Scenario) -> None:
        declared = scenario.definition[step]
        if declared.undo is Way.command:
            _arrive(scenario, declared.replies.compensated, None)
        else:
            scenario.tell(UndoSucceeded(step, _state(scenario, step).undo_attempt))

    return happen


def undo_err(step: str, code: str = "Err") -> Happening:
    def happen(scenario: Scenario) -> None:
        declared = scenario.definition[step]
        if declared.undo is Way.command:
            _arrive(scenario, declared.replies.compensation_failed, None, code)
        else:
            scenario.tell(UndoFailed(step, _state(scenario, step).undo_attempt, code))

    return happen


def undo_gives_up(step: str, code: str = "Exhausted") -> Happening:
    return lambda scenario: _tell(scenario, UndoGaveUp(step, _state(scenario, step).undo_attempt, code))


def arrives(event: object) -> Happening:
    """An event of the saga arrives: one of yours, or the name of its type."""

    def happen(scenario: Scenario) -> None:
        if isinstance(event, str):
            _arrive(scenario, event, None)
        else:
            _arrive(scenario, spec_of(event).type, event, type(event).__name__)

    return happen


def passes(span: timedelta) -> Happening:
    """Time passes, and with it the deadlines that were not cancelled."""

    def happen(scenario: Scenario) -> None:
        scenario.now += span
        while due := [deadline for deadline in scenario.deadlines if deadline.at <= scenario.now]:
            first = min(due, key=lambda deadline: deadline.at)
            scenario.deadlines.remove(first)
            scenario.tell(DeadlinePassed(first.step, first.attempt, first.undo))

    return happen


def dies(code: str) -> Happening:
    """A signal of the instance becomes a dead letter."""
    return lambda scenario: _tell(scenario, SignalDied(code))


def retry(step: str | None = None) -> Happening:
    return lambda scenario: _tell(scenario, RetryStep(*ACTOR, step))


def skip(step: str | None = None, value: Any = None) -> Happening:
    return lambda scenario: _tell(scenario, SkipStep(*ACTOR, step, value))


def compensate() -> Happening:
    return lambda scenario: _tell(scenario, Compensate(*ACTOR))


def cancel() -> Happening:
    return lambda scenario: _tell(scenario, Cancel(*ACTOR))


def twice(happening: Happening) -> Happening:
    """The same signal, delivered again."""

    def happen(scenario: Scenario) -> None:
        before = len(scenario.signals)
        happening(scenario)
        for signal in scenario.signals[before:]:
            scenario.tell(signal)

    return happen


def _tell(scenario: Scenario, signal: Signal) -> None:
    scenario.tell(signal)


def _state(scenario: Scenario, step: str) -> StepState:
    return scenario.instance[step]


def _arrive(scenario: Scenario, type_: str | None, value: Any, code: str | None = None) -> None:
    scenario.events += 1
    event_id = uuid5(SAGA, str(scenario.events))
    scenario.tell(EventArrived(event_id, type_ or "", msgspec.to_builtins(value), None, code))
