"""Run a saga's own functions and handlers, with no database: what they return and raise is what happens.

performed = await perform(place, OrderState(order_id="o-1"), faults={"charge": Err("Declined")})
performed.then(status="compensated", error="charge:Declined", undone=["reserve"])
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec

from postlude.core.outcome import Err, Ok
from postlude.core.saga.decide import is_wanted
from postlude.core.saga.decision import RunStep, RunUndo
from postlude.core.saga.signal import (
    Signal,
    StepFailed,
    StepGaveUp,
    StepSucceeded,
    UndoFailed,
    UndoGaveUp,
    UndoSucceeded,
)
from postlude.outbox.handlers import event_class_of
from postlude.saga.compiled import Compiled, Declared, compiled
from postlude.saga.filling import compensation_event
from postlude.saga.plain import PlainStep, Saga
from postlude.saga.typed import SagaDef, arguments_of
from postlude.testing.saga import SAGA, Scenario, given

Fault = Exception | Err[Any]
Local = RunStep | RunUndo


class StepContext:
    """What an action is given, without a transaction. `appended` holds the events it appended."""

    def __init__(self, scenario: Scenario, work: Local) -> None:
        self.tx = None
        self.saga_id = scenario.instance.id
        self.attempt = work.attempt
        self.idempotency_key = work.key
        self.result: Any = getattr(work, "result", None)
        self.appended: list[object] = []

    async def append(self, event: object, **options: Any) -> UUID:  # noqa: ARG002 - options matter to a database
        self.appended.append(event)
        return uuid5(SAGA, f"{self.idempotency_key}:{len(self.appended)}")


async def perform(
    saga: Declared, start: Any, handlers: Sequence[Any] = (), faults: Mapping[str, Fault] | None = None
) -> Scenario:
    """Start the saga (with the state of a plain, the trigger of a typed one) and do all local work there is. What it
    waits for then is yours to send: `await go_on(...)` after `scenario.when(...)`."""
    scenario = given(saga, start)
    await go_on(scenario, saga, handlers, faults)
    return scenario


async def go_on(
    scenario: Scenario, saga: Declared, handlers: Sequence[Any] = (), faults: Mapping[str, Fault] | None = None
) -> Scenario:
    """Do the local work that is open. `faults` are by step name, or `undo:` and the name: instead of the action this is
    raised or returned."""
    stage = _Stage(scenario, compiled(saga), handlers, faults or {})
    done: set[str] = set()
    while work := next((one for one in stage.open() if f"{one.key}:{one.attempt}" not in done), None):
        done.add(f"{work.key}:{work.attempt}")
        scenario.tell(await stage.signal(work))
    return scenario


class _Stage:
    def __init__(
        self, scenario: Scenario, saga: Compiled, handlers: Sequence[Any], faults: Mapping[str, Fault]
    ) -> None:
        self._scenario = scenario
        self._source = saga.source
        self._handlers = handlers
        self._faults = faults

    def open(self) -> list[Local]:
        asked = [item for decision in self._scenario.decisions for item in decision.follow_ups]
        return [one for one in asked if isinstance(one, Local) and is_wanted(self._scenario.instance, one)]

    async def signal(self, work: Local) -> Signal:
        undo = isinstance(work, RunUndo)
        try:
            result = await self._result(work, f"undo:{work.step}" if undo else work.step)
        except Exception as error:  # noqa: BLE001 - whatever an action raises is its outcome
            gave_up = UndoGaveUp if undo else StepGaveUp
            return gave_up(work.step, work.attempt, type(error).__name__)
        if isinstance(result, Err):
            code = result.value if isinstance(result.value, str) else type(result.value).__name__
            return (UndoFailed if undo else StepFailed)(work.step, work.attempt, code)
        if undo:
            return UndoSucceeded(work.step, work.attempt)
        value = msgspec.to_builtins(result.value)
        is_state = isinstance(self._source, Saga) and isinstance(result.value, self._source.state)
        return StepSucceeded(work.step, work.attempt, value, value if is_state else msgspec.UNSET)

    async def _result(self, work: Local, name: str) -> Any:
        fault = self._faults.get(name)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return fault
        context = StepContext(self._scenario, work)
        if isinstance(self._source, Saga):
            return await self._plain(self._source, work, context)
        return await self._typed(self._source, work, context)

    async def _plain(self, saga: Saga[Any], work: Local, context: StepContext) -> Any:
        step: PlainStep[Any] = next(one for one in saga.steps if one.name == work.step)
        function = step.undo if isinstance(work, RunUndo) else step.action
        if function is None:
            raise LookupError(f"{work.step} has no undo")
        return await function(msgspec.convert(self._scenario.instance.state, saga.state), context)

    async def _typed(self, saga: SagaDef[Any, Any], work: Local, context: StepContext) -> Any:
        step = next(one for one in saga.steps if one.name == work.step)
        trigger = msgspec.convert(self._scenario.instance.state, arguments_of(type(saga))[0])
        if isinstance(work, RunUndo):
            own = [] if work.result is None else [msgspec.convert(work.result, step.success)]
            event = await compensation_event(saga, saga.extract_id(trigger), step, [trigger, *own])
            if event is None:
                return Ok(None)
            return await self._handle(event, context)
        takes = self._scenario.definition[work.step].takes
        if takes is None:
            return await self._handle(trigger, context, step.handler)
        earlier = next(one for one in saga.steps if one.name == takes)
        taken = msgspec.convert(self._scenario.instance[takes].result, earlier.success)
        return await self._handle(taken, context, step.handler)

    async def _handle(self, event: object, context: StepContext, cls: type[Any] | None = None) -> Any:
        for handler in self._handlers:
            if isinstance(handler, cls) if cls is not None else event_class_of(handler) is type(event):
                takes_context = len(inspect.signature(handler.handle).parameters) == 2
                return await (handler.handle(event, context) if takes_context else handler.handle(event))
        raise LookupError(f"no handler was given for {type(event).__name__}")
