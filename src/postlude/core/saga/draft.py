"""A decision in the making: the only mutable thing here, and it never leaves `decide`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from postlude.core.saga.decision import CancelDeadline, Decision, FollowUp, Record, ReportStuck, ScheduleDeadline
from postlude.core.saga.definition import Definition, Kind, Step, Way
from postlude.core.saga.instance import Early, Instance, Phase, SagaStatus, StepState

TROUBLED = frozenset({Phase.gave_up, Phase.undo_failed, Phase.undo_gave_up})


class Draft:
    def __init__(self, definition: Definition, instance: Instance, now: datetime) -> None:
        self.definition = definition
        self.instance = instance
        self.now = now
        self.status = instance.status
        self.states = list(instance.steps)
        self.state = instance.state
        self.turned = instance.turned
        self.error = instance.error
        self.held = instance.held
        self.early: list[Early] = list(instance.early)
        self.follow_ups: list[FollowUp] = []
        self.history: list[Record] = []

    def step(self, index: int) -> Step:
        return self.definition.steps[index]

    def phase(self, index: int) -> Phase:
        return self.states[index].phase

    def change(self, index: int, **changes: Any) -> StepState:
        self.states[index] = replace(self.states[index], **changes)
        return self.states[index]

    def note(self, what: str, step: str | None = None, attempt: int = 0, detail: str | None = None) -> None:
        self.history.append(Record(self.now, what, step, attempt, detail))

    def follow(self, follow_up: FollowUp) -> None:
        self.follow_ups.append(follow_up)

    def schedule(self, index: int, *, undo: bool = False) -> None:
        """The step's deadline counts from now."""
        step, state = self.step(index), self.states[index]
        if step.deadline is not None:
            attempt = state.undo_attempt if undo else state.attempt
            self.follow(ScheduleDeadline(self.now + timedelta(seconds=step.deadline), step.name, attempt, undo))

    def unschedule(self, index: int, *, undo: bool = False) -> None:
        if undo and self.step(index).undo is not Way.command:
            return  # What is undone here has no deadline.
        if self.step(index).deadline is not None:
            self.follow(CancelDeadline(self.step(index).name))

    def drop_early(self) -> None:
        """Nobody will want what came early any more."""
        for early in self.early:
            self.note("late", None, 0, early.type)
        self.early.clear()

    def indexes(self, *phases: Phase) -> list[int]:
        return [index for index, state in enumerate(self.states) if state.phase in phases]

    def current(self) -> str:
        """The first step that is not done: what the saga is at."""
        return next((state.name for state in self.states if state.phase is not Phase.done), self.states[-1].name)

    @property
    def is_past_pivot(self) -> bool:
        """Has the pivot begun? From then on nobody but its own failure turns the saga back."""
        pivot = self.definition.pivot
        return pivot is not None and self.phase(pivot) is not Phase.ahead

    def troubles(self) -> Iterator[StepState]:
        """Steps that need an operator."""
        return troubles(self.definition, self.states, turned=self.turned)

    def trouble(self) -> str:
        """The first trouble, as an error."""
        state = next(self.troubles(), None)
        return f"signal:{self.held}" if state is None else f"{state.name}:{state.code}"

    def decision(self) -> Decision:
        self._report()
        instance = replace(
            self.instance,
            status=self.status,
            version=self.instance.version + 1,
            steps=tuple(self.states),
            state=self.state,
            error=self.error,
            turned=self.turned,
            held=self.held,
            early=tuple(self.early),
            updated_at=self.now,
            ended_at=self.now if self.status.is_end else None,
        )
        return Decision(instance, tuple(self.follow_ups), tuple(self.history))

    def _report(self) -> None:
        """Tell once of each new trouble."""
        before = set(self._known_troubles())
        for state in self.troubles():
            if (state.name, state.phase, state.attempt, state.undo_attempt) not in before:
                self._stuck(state.name, state.code or state.phase)
        if self.held is not None and self.held != self.instance.held:
            self._stuck(None, self.held)

    def _known_troubles(self) -> Iterator[tuple[str, Phase, int, int]]:
        for state in troubles(self.definition, self.instance.steps, turned=self.instance.turned):
            yield state.name, state.phase, state.attempt, state.undo_attempt

    def _stuck(self, step: str | None, code: str) -> None:
        self.note("stuck", step, 0, code)
        self.follow(ReportStuck(step, code))


def troubles(
    definition: Definition, states: list[StepState] | tuple[StepState, ...], *, turned: bool
) -> Iterator[StepState]:
    for step, state in zip(definition.steps, states, strict=True):
        refused = state.phase is Phase.failed and step.kind is Kind.retriable and not turned
        if state.phase in TROUBLED or refused:
            yield state


def is_stuck(draft: Draft) -> bool:
    return draft.held is not None or next(draft.troubles(), None) is not None


def mark_stuck(draft: Draft) -> None:
    """On the way forward the error says what it is stuck on; on the way back it keeps saying what turned the saga."""
    draft.status = SagaStatus.stuck
    if not draft.turned:
        draft.error = draft.trouble()
