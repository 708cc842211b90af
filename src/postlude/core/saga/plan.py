"""Instances against the code about to run them: which go on, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec
from msgspec.structs import replace

from postlude.core.saga.definition import Definition
from postlude.core.saga.instance import Instance, Phase, SagaStatus, state_of


class Plan(msgspec.Struct, frozen=True):
    """What the code means for one live instance."""

    instance_id: UUID
    process_id: str
    status: SagaStatus
    continues: bool
    why: str


def plan(definition: Definition | None, instances: Iterable[Instance]) -> list[Plan]:
    """A line for every instance that has not ended. No definition: the code no longer knows the saga."""
    return [_plan(definition, instance) for instance in instances if not instance.status.is_end]


def misfit(definition: Definition, instance: Instance) -> str | None:
    """Why the definition cannot continue the instance; None: it can. What was begun must be there as it was, in the
    same order; what lies ahead may have changed, but not around a stage under way."""
    if instance.hash == definition.hash:
        return None
    begun = [state for state in instance.steps if state.phase is not Phase.ahead]
    for number, state in enumerate(begun):
        if state.name not in definition.index:
            return f"step {state.name} was begun and is no longer there"
        if number >= len(definition.steps) or definition.steps[number].name != state.name:
            return f"step {state.name} was begun and now stands in another place"
        if definition.steps[number].shape != state.shape:
            return f"step {state.name} was begun and has changed since"
    if begun and len(begun) < len(definition.steps):
        last, following = definition.steps[len(begun) - 1], definition.steps[len(begun)]
        if last.block is not None and last.block == following.block:
            return f"step {following.name} was put into block {last.block}, which was begun"
    return None


def fit(definition: Definition, instance: Instance) -> Instance:
    """The instance as the definition sees it: what was begun, and what lies ahead now. Call it when the hashes differ
    and `misfit` says None."""
    if instance.hash == definition.hash:
        return instance
    begun = tuple(state for state in instance.steps if state.phase is not Phase.ahead)
    ahead = tuple(state_of(step) for step in definition.steps[len(begun) :])
    return replace(instance, steps=begun + ahead, hash=definition.hash)


def _plan(definition: Definition | None, instance: Instance) -> Plan:
    reason = "the code has no saga of this name" if definition is None else misfit(definition, instance)
    if reason is not None:
        why = reason
    elif definition is not None and definition.hash == instance.hash:
        why = "same definition"
    else:
        why = "changed only in what lies ahead"
    return Plan(instance.id, instance.process_id, instance.status, reason is None, why)
