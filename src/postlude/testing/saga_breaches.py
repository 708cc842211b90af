"""The invariants of every saga, as questions asked after each thing that happens."""

from __future__ import annotations

from postlude.core.saga.decision import Decision, Emit, RunStep, RunUndo, SendCommand, SendUndo
from postlude.core.saga.definition import Definition, Step
from postlude.core.saga.instance import Instance, SagaStatus

TELLS = {SagaStatus.completed: "completed", SagaStatus.compensated: "failed"}
Effects = frozenset[tuple[str, str]]


def after_decision(before: Instance, decision: Decision) -> str | None:
    """Does the decision keep to what every decision must?"""
    after = decision.instance
    works = [item for item in decision.follow_ups if isinstance(item, RunStep | SendCommand | RunUndo | SendUndo)]
    if after.status.is_end and works:
        return f"effect after the end: {type(works[0]).__name__} of {works[0].step}"
    if before.status.is_end and after is not before:
        return "changed after the end"
    if not decision.history:
        return "no history"
    if decision.ignored is None and after.version != before.version + 1:
        return "version did not go up by one"
    told = [item.what for item in decision.follow_ups if isinstance(item, Emit) and item.what != "late"]
    expected = [TELLS[after.status]] if after.status.is_end and not before.status.is_end else []
    return None if told == expected else f"told {told}, expected {expected}"


def after_effect(
    definition: Definition, instance: Instance, effects: Effects, undone: frozenset[str], work: RunStep | SendCommand
) -> str | None:
    """A step takes effect: may it, here and now?"""
    step = definition[work.step]
    if step.undo is None and isinstance(work, SendCommand):
        return None  # Nothing to undo: the saga need not wait for it.
    if instance.status.is_end:
        return f"effect after the end: {work.step}"
    if any(name == work.step and key != work.key for name, key in effects):
        return f"effect twice: {work.step}"
    too_late = [name for name in undone if _stage(definition, name) <= _stage(definition, work.step)]
    return f"effect of {work.step} after the undo of {min(too_late)}" if too_late else None


def after_undo(definition: Definition, instance: Instance, effects: Effects, name: str) -> str | None:
    """An undo takes effect: is everything undone that came after?"""
    if instance.status.is_end:
        return f"effect after the end: undo of {name}"
    standing = {effect for effect, _ in effects}
    later = [step.name for step in definition.steps if _is_later(definition, step, name) and step.name in standing]
    return f"undo of {name} before the undo of {later[-1]}" if later else None


def _is_later(definition: Definition, step: Step, name: str) -> bool:
    return step.undo is not None and _stage(definition, step.name) > _stage(definition, name)


def _stage(definition: Definition, name: str) -> int:
    return definition.stage_of[definition.index[name]]
