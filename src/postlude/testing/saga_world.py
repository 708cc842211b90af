"""The world around a saga, as small as it can be: work that waits to be done, signals under way, deadlines that may
pass, effects that stand. `explore` tries everything that can happen in it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from postlude.core.saga.decision import (
    Work,
)
from postlude.core.saga.definition import Definition, Way
from postlude.core.saga.instance import Instance, SagaStatus
from postlude.core.saga.signal import (
    Signal,
)


class Faults(msgspec.Struct, frozen=True):
    """How much may go wrong in one schedule: steps and undos that fail, signals that come twice (or deadlines that pass
    although they were cancelled), orders of an operator."""

    failures: int = 1
    duplicates: int = 1
    orders: int = 0


class Fact(msgspec.Struct, frozen=True):
    """Somebody will say what a wait waits for, at any time."""

    step: str


class Lapse(msgspec.Struct, frozen=True):
    """A deadline that may pass."""

    step: str | None
    attempt: int
    undo: bool
    cancelled: bool = False


Pending = Work | Signal | Fact | Lapse


class World(msgspec.Struct, frozen=True):
    """`effects` are (step, key) that stand; `undone` what was taken back; `keys` what was ever done or undone: whoever
    is given a key again answers from memory."""

    instance: Instance
    pending: frozenset[Pending]
    faults: Faults
    effects: frozenset[tuple[str, str]] = frozenset()
    undone: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    by_hand: bool = False
    """An operator's word stands for an effect: what really happened is theirs to answer for."""

    @property
    def identity(self) -> object:
        """Two worlds with the same have the same future."""
        one = self.instance
        where = (one.status, one.turned, one.held, one.steps, one.early)
        return where, self.pending, self.faults, self.effects, self.undone, self.keys, self.by_hand

    @property
    def is_quiet(self) -> bool:
        """Nothing must happen any more; something may."""
        return all(isinstance(item, Lapse) and item.cancelled for item in self.pending)


class Move(msgspec.Struct, frozen=True):
    """Something that can happen, and what it breaks, if anything."""

    label: str
    world: World
    breach: str | None = None


def ended_badly(definition: Definition, world: World) -> str | None:
    """Nothing more will happen of itself: is that an end?"""
    status = world.instance.status
    if status in (SagaStatus.running, SagaStatus.compensating):
        return f"no end: {status}, and nothing is under way"
    if world.by_hand:
        return None
    standing = {name for name, _ in world.effects}
    if status is SagaStatus.compensated:
        left = [step.name for step in definition.steps if step.undo is not None and step.name in standing]
        return f"not undone: {', '.join(left)}" if left else None
    if status is SagaStatus.completed:
        gone = [step.name for step in definition.steps if step.way is not Way.wait and step.name not in standing]
        return f"completed without: {', '.join(gone)}" if gone else None
    return None


def sent(world: World, signal: Signal) -> World:
    return replace(world, pending=world.pending | {signal})


def again(world: World, work: Work) -> World:
    """Whoever did it died before saying so: it is done again, with the same key."""
    spent = spend(world, duplicates=1)
    return replace(spent, pending=spent.pending | {work})


def spend(world: World, **spent: int) -> World:
    left = {name: getattr(world.faults, name) - count for name, count in spent.items()}
    return replace(world, faults=replace(world.faults, **left))


def cancelled(pending: set[Pending], faults: Faults, steps: set[str | None]) -> set[Pending]:
    kept: set[Pending] = set()
    for item in pending:
        if not isinstance(item, Lapse) or item.step not in steps:
            kept.add(item)
        elif faults.duplicates:
            kept.add(replace(item, cancelled=True))
    return kept
