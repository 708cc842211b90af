"""The work of sagas as calls: who is called with what, and what the answer means to the saga."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec

from postlude.core.event import SPEC, EventSpec, spec_of
from postlude.core.outcome import Err, Ok
from postlude.core.saga.decision import RunStep, RunUndo, SendCommand, SendUndo, Work
from postlude.core.saga.instance import Instance
from postlude.core.saga.signal import (
    Signal,
    StepFailed,
    StepGaveUp,
    StepSucceeded,
    UndoFailed,
    UndoGaveUp,
    UndoSucceeded,
)
from postlude.errors import ContractViolation, NotEncodable
from postlude.outbox.handlers import Handler
from postlude.outbox.prepare import Message
from postlude.runtime.calling import Callee
from postlude.runtime.context import Task
from postlude.saga.check_plain import hints_of, parts_of
from postlude.saga.compiled import Compiled
from postlude.saga.filling import command_event, compensation_event
from postlude.saga.plain import PlainStep, Saga
from postlude.saga.registry import Registry
from postlude.saga.typed import SagaDef
from postlude.saga.values import event_of, kept, known_before, known_of, restored, state_of, trigger_of, typed

IDEMPOTENCY_KEY = "idempotency-key"
"""The header of a command that a participant should echo in its reply."""


class Told(msgspec.Struct, frozen=True):
    """What an answer means: a signal, and events to append. `is_err`: what was done is to be rolled back."""

    signal: Signal
    events: tuple[object, ...] = ()
    is_err: bool = False


class Called(msgspec.Struct, frozen=True):
    """A call about to be made."""

    argument: object
    task: Task
    read: Callable[[object], Told]
    """Raises ContractViolation."""


class PlainCallee(msgspec.Struct, frozen=True):
    """A function of a plain saga."""

    name: str
    function: Callable[..., Any]
    transactional: bool
    timeout: float
    takes_context: bool = True
    is_async: bool = True


class Steps:
    """Of one saga."""

    def __init__(self, made: Compiled, registry: Registry, timeout: float) -> None:
        self._made = made
        self._registry = registry
        self._timeout = timeout

    def callees(self) -> list[Callee]:
        """Everybody who may be called."""
        steps = self._made.definition.steps
        works = [work(step.name, 0, "") for step in steps for work in (RunStep, RunUndo)]
        return [callee for callee in map(self.callee, works) if callee is not None]

    def specs(self) -> list[EventSpec]:
        """Of the events that its handlers take and may return."""
        handlers = [one for one in self.callees() if isinstance(one, Handler)]
        returned = [cls for one in handlers for cls in (*one.returns.ok, *one.returns.err) if SPEC in cls.__dict__]
        return [*(one.spec for one in handlers), *map(spec_of, returned)]

    def callee(self, work: Work) -> Callee | None:
        """Who does it; None: it is sent to a participant, or nobody does it."""
        index = self._made.definition.index[work.step]
        plan, undo = self._made.definition.steps[index], isinstance(work, RunUndo | SendUndo)
        if (plan.undo if undo else plan.way) != "handler":
            return None
        source = self._made.source
        if isinstance(source, SagaDef):
            return self._registry.handler_of(source, source.steps[index], undo=undo)
        step = source.steps[index]
        function: Any = step.undo if undo else step.action
        name = f"{source.name}.{step.name}" + (".undo" if undo else "")
        return PlainCallee(name, function, step.transactional, self._timeout)

    async def call(self, instance: Instance, work: Work) -> Called | Told:
        """The call, or at once what it means when there is nothing to do. Hooks of the saga are asked here."""
        index = self._made.definition.index[work.step]
        source = self._made.source
        if isinstance(source, Saga):
            return _plain_call(source, source.steps[index], instance, work)
        callee = self._registry.handler_of(source, source.steps[index], undo=isinstance(work, RunUndo))
        own = event_of(source, instance, index)
        if isinstance(work, RunUndo):
            undo = await compensation_event(
                source, _id(source, instance), source.steps[index], self._known(instance, index)
            )
            if undo is None:
                return Told(UndoSucceeded(work.step, work.attempt))
            return Called(undo, Task(work.key, own), lambda returned: _undone(callee, work, undo, returned))
        takes = self._made.definition.steps[index].takes
        argument = trigger_of(source, instance)
        if takes is not None:
            argument = event_of(source, instance, self._made.definition.index[takes])
        return Called(argument, Task(work.key), lambda returned: _done(callee, work, returned))

    async def message(self, instance: Instance, work: Work) -> Message | Told:
        """What a participant is sent, or at once what it means when there is nothing to undo."""
        source, index = typed(self._made), self._made.definition.index[work.step]
        step, id = source.steps[index], _id(source, instance)
        event: object | None
        if isinstance(work, SendCommand):
            event = await command_event(source, id, step, known_before(self._made, instance, index))
        else:
            event = await compensation_event(source, id, step, self._known(instance, index))
        if event is None:
            return Told(UndoSucceeded(work.step, work.attempt))
        return Message(event, topic=step.topic, key=instance.process_id, headers={IDEMPOTENCY_KEY: work.key})

    def _known(self, instance: Instance, index: int) -> list[Any]:
        return known_of(self._made, instance, index)


def gave_up(work: Work, code: str, *, may_have_happened: bool) -> Signal:
    """All retries are used."""
    if isinstance(work, RunUndo | SendUndo):
        return UndoGaveUp(work.step, work.attempt, code)
    return StepGaveUp(work.step, work.attempt, code, may_have_happened)


def _id(saga: SagaDef[Any, Any], instance: Instance) -> Any:
    return saga.deserialize_id(instance.process_id)


# ---------------------------------------------------------------- typed


def _done(handler: Handler, work: Work, returned: object) -> Told:
    result = handler.returns.check(returned)
    if result is None:
        raise ContractViolation(f"{handler.name} is a saga's step and returned nothing", hint="Return Ok or Err.")
    if isinstance(result, Err):
        code = type(result.value).__name__
        return Told(StepFailed(work.step, work.attempt, code), (result.value,), is_err=True)
    return Told(StepSucceeded(work.step, work.attempt, kept(result.value)), (result.value,))


def _undone(handler: Handler, work: Work, undo: object, returned: object) -> Told:
    """The event that asked for it is part of the record, like what came of it."""
    result = handler.returns.check(returned)
    events = (undo,) if result is None or result.value is None else (undo, result.value)
    if isinstance(result, Err):
        return Told(UndoFailed(work.step, work.attempt, type(result.value).__name__), events, is_err=True)
    return Told(UndoSucceeded(work.step, work.attempt), events)


# ---------------------------------------------------------------- plain


def _plain_call(saga: Saga[Any], step: PlainStep[Any], instance: Instance, work: Work) -> Called:
    state = state_of(saga, instance)
    if isinstance(work, RunUndo):
        result = instance[work.step].result
        cls = _result_class(step.action)
        if cls is not None and result is not None:
            result = restored(cls, result)
        return Called(state, Task(work.key, result), lambda returned: _plain_undone(step, work, returned))
    return Called(state, Task(work.key), lambda returned: _plain_done(saga, step, work, returned))


def _plain_done(saga: Saga[Any], step: PlainStep[Any], work: Work, returned: object) -> Told:
    result = _checked(step, returned)
    if isinstance(result, Err):
        return Told(StepFailed(work.step, work.attempt, str(result.value)), is_err=True)
    try:
        value = kept(result.value)
    except NotEncodable as error:
        raise ContractViolation(f"step {step.name}: its result cannot be kept: {error.args[0]}") from error
    state = value if isinstance(result.value, saga.state) else msgspec.UNSET
    return Told(StepSucceeded(work.step, work.attempt, value, state))


def _plain_undone(step: PlainStep[Any], work: Work, returned: object) -> Told:
    if returned is not None and isinstance(result := _checked(step, returned), Err):
        return Told(UndoFailed(work.step, work.attempt, str(result.value)), is_err=True)
    return Told(UndoSucceeded(work.step, work.attempt))


def _checked(step: PlainStep[Any], returned: object) -> Ok[Any] | Err[Any]:
    if not isinstance(returned, Ok | Err):
        raise ContractViolation(
            f"step {step.name} returned {type(returned).__name__}, neither Ok nor Err",
            hint="Return Ok(value), or Err(reason) when it cannot be done.",
        )
    return returned


def _result_class(action: Callable[..., Any]) -> Any:
    """The T of the Ok[T] that an action declares, where it is one that can be read back."""
    for part in parts_of(hints_of(action).get("return")):
        arguments = typing.get_args(part)
        if typing.get_origin(part) is Ok and isinstance(arguments[0], type) and arguments[0] is not object:
            return arguments[0]
    return None
