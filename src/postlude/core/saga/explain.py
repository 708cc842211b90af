"""Where an instance stands, in words: what it waits for, what is left, what an operator can do."""

from __future__ import annotations

import msgspec

from postlude.core.saga.definition import Definition, Step, Way
from postlude.core.saga.draft import troubles
from postlude.core.saga.instance import Instance, Phase, SagaStatus, StepState


class Explanation(msgspec.Struct, frozen=True):
    """`step` is what the instance is at; `remaining` what is still to be done, or on the way back to be undone."""

    step: str | None
    waits_for: tuple[str, ...]
    remaining: tuple[str, ...]


def explain(definition: Definition, instance: Instance) -> Explanation:
    if instance.status.is_end:
        return Explanation(None, (), ())
    waits = [
        words
        for step, state in zip(definition.steps, instance.steps, strict=True)
        if (words := _waits_for(step, state)) is not None
    ]
    if instance.status is SagaStatus.stuck:
        waits = [*_for_an_operator(definition, instance), *waits]
    return Explanation(_at(instance), tuple(waits), _remaining(definition, instance))


def _waits_for(step: Step, state: StepState) -> str | None:
    if state.phase is Phase.undoing:
        if step.undo is Way.command:
            return (
                f"undo of {step.name}: a reply, {_either(step.replies.compensated, step.replies.compensation_failed)}"
            )
        return f"undo of {step.name}: its handler (attempt {state.undo_attempt})"
    if state.phase is not Phase.running:
        return None
    if step.way is Way.handler:
        return f"{step.name}: its handler (attempt {state.attempt})"
    what = "a reply" if step.way is Way.command else "an event"
    return f"{step.name}: {what}, {_either(step.replies.success, step.replies.failure)}"


def _for_an_operator(definition: Definition, instance: Instance) -> list[str]:
    words = [_trouble(state) for state in troubles(definition, instance.steps, turned=instance.turned)]
    if instance.held is not None:
        words.append(f"an operator: a signal died ({instance.held}); requeue it and retry")
    return words


def _trouble(state: StepState) -> str:
    if state.phase is Phase.undo_failed:
        return f"an operator: the undo of {state.name} failed ({state.code}); retry, or skip when it is undone by hand"
    if state.phase is Phase.undo_gave_up:
        return f"an operator: the undo of {state.name} gave up ({state.code}); retry, or skip when it is undone by hand"
    if state.phase is Phase.gave_up:
        return f"an operator: {state.name} may have happened ({state.code}); retry, skip with a value, or compensate"
    return f"an operator: {state.name} failed ({state.code}); retry, skip with a value, or compensate"


def _at(instance: Instance) -> str | None:
    """The step being done or undone, or what stopped it; else the next."""
    undo = {Phase.undoing, Phase.undo_failed, Phase.undo_gave_up}
    do = {Phase.running, Phase.gave_up} | (set() if instance.turned else {Phase.failed})
    for phases in (undo, do, {Phase.ahead}):
        for state in instance.steps:
            if state.phase in phases:
                return state.name
    return None


def _remaining(definition: Definition, instance: Instance) -> tuple[str, ...]:
    both = list(zip(definition.steps, instance.steps, strict=True))
    if not instance.turned:
        return tuple(step.name for step, state in both if state.phase is not Phase.done)
    ended = (Phase.ahead, Phase.failed, Phase.dropped, Phase.undone)
    left = [step.name for step, state in both if step.undo is not None and state.phase not in ended]
    return tuple(reversed(left))


def _either(*types: str | None) -> str:
    return " or ".join(type_ for type_ in types if type_ is not None)
