"""What can happen in the world of a saga: work is done, fails or is done twice; signals and deadlines come in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from uuid import UUID, uuid5

from msgspec.structs import replace

from postlude.core.saga.decide import is_wanted
from postlude.core.saga.decision import (
    CancelDeadline,
    CancelDeadlines,
    Decision,
    FollowUp,
    RunStep,
    RunUndo,
    ScheduleDeadline,
    SendCommand,
    SendUndo,
)
from postlude.core.saga.definition import Definition, Way
from postlude.core.saga.instance import Instance, Phase, new_instance
from postlude.core.saga.signal import (
    Cancel,
    Compensate,
    DeadlinePassed,
    EventArrived,
    RetryStep,
    Signal,
    SkipStep,
    Started,
    StepFailed,
    StepGaveUp,
    StepSucceeded,
    UndoFailed,
    UndoGaveUp,
    UndoSucceeded,
)
from postlude.testing.saga_breaches import after_decision, after_effect, after_undo
from postlude.testing.saga_world import Fact, Faults, Lapse, Move, Pending, World, again, cancelled, sent, spend

Engine = Callable[[Definition, Instance, Signal, datetime], Decision]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
SAGA = UUID(int=1)
ORDERS: tuple[Signal, ...] = (
    RetryStep("explore", "tried"),
    SkipStep("explore", "tried"),
    Compensate("explore", "tried"),
    Cancel("explore", "tried"),
)


class Rules:
    """What can happen in a world of one saga."""

    def __init__(self, definition: Definition, engine: Engine, faults: Faults) -> None:
        self.definition = definition
        self._engine = engine
        self._faults = faults

    def first(self) -> Move:
        instance = new_instance(self.definition, SAGA, "1", 1, None, NOW)
        facts = frozenset(Fact(step.name) for step in self.definition.steps if step.way is Way.wait)
        return self._tell(World(instance, facts, self._faults), Started(), "start")

    def moves(self, world: World) -> Iterator[Move]:
        for item in sorted(world.pending, key=_name):
            without = replace(world, pending=world.pending - {item})
            match item:
                case Fact():
                    yield from self._say(without, item)
                case Lapse():
                    yield from self._lapse(without, item)
                case RunStep() | SendCommand():
                    yield from self._do(without, item)
                case RunUndo() | SendUndo():
                    yield from self._undo(without, item)
                case _:
                    yield self._tell(without, item, f"deliver {_name(item)}")
                    if world.faults.duplicates:
                        yield self._tell(spend(world, duplicates=1), item, f"deliver {_name(item)}, keep a duplicate")
        if world.faults.orders and not world.instance.status.is_end:
            for order in ORDERS:
                by_hand = isinstance(order, SkipStep | Compensate)
                spent = replace(spend(world, orders=1), by_hand=by_hand)
                yield self._tell(spent, order, f"operator: {type(order).__name__}")

    # ------------------------------------------------------------ what the outside does

    def _say(self, world: World, fact: Fact) -> Iterator[Move]:
        step = self.definition[fact.step]
        yield self._tell(world, _event(step.name, step.replies.success), f"event for {step.name} arrives")
        if step.replies.failure is not None and world.faults.failures:
            spent = spend(world, failures=1)
            yield self._tell(spent, _event(step.name, step.replies.failure), f"refusal of {step.name} arrives")

    def _lapse(self, world: World, lapse: Lapse) -> Iterator[Move]:
        name = "the saga" if lapse.step is None else f"undo of {lapse.step}" if lapse.undo else lapse.step
        signal = DeadlinePassed(lapse.step, lapse.attempt, lapse.undo)
        if not lapse.cancelled:
            yield self._tell(world, signal, f"deadline of {name} passes")
        elif world.faults.duplicates:
            yield self._tell(spend(world, duplicates=1), signal, f"cancelled deadline of {name} passes")

    def _do(self, world: World, work: RunStep | SendCommand) -> Iterator[Move]:
        name = work.step
        if isinstance(work, RunStep) and not is_wanted(world.instance, work):
            yield Move(f"drop work of {name}", world)
            return
        yield self._effect(world, work, _succeeded(self.definition, work), f"{name}: Ok")
        if world.faults.duplicates:
            yield self._effect(again(world, work), work, None, f"{name}: Ok, then a crash")
        if not world.faults.failures:
            return
        spent = spend(world, failures=1)
        failed = _failed(self.definition, work)
        if failed is not None and work.key not in world.keys:
            yield Move(f"{name}: Err", sent(spent, failed))
        if isinstance(work, RunStep):
            gone = StepGaveUp(name, work.attempt, "Exhausted")
            yield Move(f"{name}: gives up before it happens", sent(spent, gone))
            yield self._effect(spent, work, gone, f"{name}: gives up after it happened")
            return
        dead = StepGaveUp(name, work.attempt, "DeadLetter")
        yield Move(f"{name}: command becomes a dead letter", sent(spent, dead))
        if self.definition[name].deadline is not None:
            yield Move(f"{name}: command lost", spent)
            yield self._effect(spent, work, None, f"{name}: reply lost")

    def _undo(self, world: World, work: RunUndo | SendUndo) -> Iterator[Move]:
        name = work.step
        if any(isinstance(item, RunStep | SendCommand) and item.step == name for item in world.pending):
            return  # The same key, hence the same lane or queue: a step's own work goes first.
        if isinstance(work, RunUndo) and not is_wanted(world.instance, work):
            yield Move(f"drop undo of {name}", world)
            return
        breach, after = None, world
        if work.key not in world.keys:
            breach = None if world.by_hand else after_undo(self.definition, world.instance, world.effects, name)
            standing = frozenset(effect for effect in world.effects if effect[0] != name)
            after = replace(world, effects=standing, undone=world.undone | {name}, keys=world.keys | {work.key})
        good, bad = _undo_replies(self.definition, work)
        yield Move(f"undo {name}: Ok", sent(after, good), breach)
        if world.faults.duplicates:
            yield Move(f"undo {name}: Ok, then a crash", again(after, work), breach)
        if not world.faults.failures:
            return
        spent = spend(world, failures=1)
        if bad is not None and work.key not in world.keys:
            yield Move(f"undo {name}: Err", sent(spent, bad))
        yield Move(f"undo {name}: gives up", sent(spent, UndoGaveUp(name, work.attempt, "Exhausted")))

    def _effect(self, world: World, work: RunStep | SendCommand, signal: Signal | None, label: str) -> Move:
        breach, after = None, world
        if work.key not in world.keys:
            breach = after_effect(self.definition, world.instance, world.effects, world.undone, work)
            effects = world.effects | {(work.step, work.key)}
            after = replace(world, effects=effects, keys=world.keys | {work.key})
        return Move(label, after if signal is None else sent(after, signal), None if world.by_hand else breach)

    # ------------------------------------------------------------ what the engine does

    def _tell(self, world: World, signal: Signal, label: str) -> Move:
        before = world.instance
        decision = self._engine(self.definition, before, signal, NOW)
        breach = after_decision(before, decision)
        effects = world.effects
        for step, old, new in zip(self.definition.steps, before.steps, decision.instance.steps, strict=True):
            taken = old.phase is not Phase.done and new.phase is Phase.done
            if step.way is Way.wait and step.undo is not None and taken and isinstance(signal, EventArrived):
                effects |= {(step.name, "")}
        pending = self._pending(world, decision.follow_ups)
        return Move(label, replace(world, instance=decision.instance, effects=effects, pending=pending), breach)

    def _pending(self, world: World, follow_ups: tuple[FollowUp, ...]) -> frozenset[Pending]:
        pending = set(world.pending)
        for item in follow_ups:
            match item:
                case RunStep() | SendCommand() | RunUndo() | SendUndo():
                    pending.add(item)
                case ScheduleDeadline():
                    pending.add(Lapse(item.step, item.attempt, item.undo))
                case CancelDeadline():
                    pending = cancelled(pending, world.faults, {item.step})
                case CancelDeadlines():
                    pending = cancelled(pending, world.faults, {None, *self.definition.index})
                case _:
                    pass
        return frozenset(pending)


def _succeeded(definition: Definition, work: RunStep | SendCommand) -> Signal:
    if isinstance(work, RunStep):
        return StepSucceeded(work.step, work.attempt, work.step)
    return _event(work.key, definition[work.step].replies.success, work.key)


def _failed(definition: Definition, work: RunStep | SendCommand) -> Signal | None:
    if isinstance(work, RunStep):
        return StepFailed(work.step, work.attempt, "Err")
    failure = definition[work.step].replies.failure
    return None if failure is None else _event(work.key, failure, work.key)


def _undo_replies(definition: Definition, work: RunUndo | SendUndo) -> tuple[Signal, Signal | None]:
    if isinstance(work, RunUndo):
        return UndoSucceeded(work.step, work.attempt), UndoFailed(work.step, work.attempt, "Err")
    replies = definition[work.step].replies
    bad = None if replies.compensation_failed is None else _event(work.key, replies.compensation_failed, work.key)
    return _event(work.key, replies.compensated, work.key), bad


@cache
def _event(source: str, type_: str | None, answers: str | None = None) -> EventArrived:
    return EventArrived(uuid5(SAGA, f"{source}/{type_}"), type_ or "", source, answers)


@cache
def _name(item: Pending) -> str:
    if isinstance(item, EventArrived):
        return f"{item.type} ({item.value})"
    step = getattr(item, "step", None)
    return type(item).__name__ if step is None else f"{type(item).__name__}({step})"
