"""Applies a decision in a transaction: the instance guarded by its version, its history, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from postlude.core.delivery import Delivery, StoredEvent
from postlude.core.envelope import stored_headers
from postlude.core.lanes import lane_of
from postlude.core.lifecycle import Status
from postlude.core.saga.decide import decide
from postlude.core.saga.decision import (
    CancelDeadline,
    CancelDeadlines,
    Decision,
    Emit,
    FollowUp,
    ReportStuck,
    RunStep,
    RunUndo,
    ScheduleDeadline,
    SendCommand,
    SendUndo,
)
from postlude.core.saga.instance import Instance
from postlude.core.saga.plan import fit, misfit
from postlude.core.saga.signal import Signal
from postlude.core.statement import Script
from postlude.errors import Misfit
from postlude.outbox import current
from postlude.outbox.outbox import Handles, Outbox
from postlude.outbox.prepare import Message, Preparing, new_id
from postlude.ports.append import Prepared, Route
from postlude.ports.sagas import Advanced, SagaAudit, SagaScripts
from postlude.saga.compiled import Compiled
from postlude.saga.messages import TYPE, deadline_id, destination_of, message_of
from postlude.saga.times import Times
from postlude.saga.typed import SagaDef

T = TypeVar("T")
_SAME = tuple(name for name in StoredEvent.__struct_fields__ if name not in {"headers", "created_at"})
MANY = 3
"""How often a decision is made again because somebody else was faster. Locked, once is enough."""


class HookFailed(Exception):
    """A method of the saga raised: whatever was to be decided cannot be, for reasons that are not the step's."""


class Stuck(msgspec.Struct, frozen=True):
    """A saga that needs an operator, as hooks are told of it."""

    saga_id: UUID
    name: str
    process_id: str
    step: str | None
    code: str


class Applied(msgspec.Struct, frozen=True):
    """What was decided in the end, and whom to tell of it after the commit."""

    decision: Decision
    written: bool = True
    followed_by: tuple[tuple[Delivery, StoredEvent], ...] = ()
    """Work of the saga's that was appended, where that is known already."""

    @property
    def stuck(self) -> list[Stuck]:
        instance = self.decision.instance
        return [
            Stuck(instance.id, instance.name, instance.process_id, one.step, one.code)
            for one in self.decision.follow_ups
            if isinstance(one, ReportStuck)
        ]


class Applying:
    """On handles of one database."""

    def __init__(self, scripts: SagaScripts, outbox: Outbox, handles: Handles, times: Times) -> None:
        self.scripts = scripts
        self.outbox = outbox
        self.times = times
        self._handles = handles

    async def play(self, tx: Any, script: Script[T]) -> T:
        return await self._handles.adapter(tx).play(tx, script)

    async def signal(
        self, tx: Any, made: Compiled, instance: Instance, signal: Signal, events: Sequence[object] = ()
    ) -> Applied | None:
        """Decide and apply, on the instance as it was read, or as it is when somebody else was faster. None: it is gone.
        `events` are appended with it."""
        for _ in range(MANY):
            decision = decide(made.definition, fitting(made, instance), signal, self.times.now())
            applied = await self.apply(tx, made, decision, events)
            if applied is not None:
                return applied
            found = await self.play(tx, self.scripts.get(instance.id, lock=True))
            if found is None:
                return None
            instance = found
        return Applied(decision, written=False)

    async def apply(self, tx: Any, made: Compiled, decision: Decision, events: Sequence[object] = ()) -> Applied | None:
        """None: the instance is not as it was, and nothing was written."""
        instance = decision.instance
        preparing = await self.outbox.join(tx)
        prepared = [of_saga(preparing.recorded(Message(event)), instance) for event in events]
        prepared += [one async for one in self._following(preparing, made, decision)]
        written = await self._write(tx, decision, prepared)
        if written is None:
            return None
        await self._cancel(tx, made, decision)
        for follow_up in decision.follow_ups:
            if isinstance(follow_up, ReportStuck):
                await self._audit_stuck(tx, instance, follow_up)
        return Applied(decision, followed_by=_read_back(written, prepared))

    async def _write(self, tx: Any, decision: Decision, prepared: Sequence[Prepared]) -> Advanced | None:
        instance, history = decision.instance, decision.history
        if decision.ignored is not None:
            await self.play(tx, self.scripts.note(instance.id, instance.version, history))
        elif len(prepared) == 1 and len(prepared[0].routes) == 1:
            (message,) = await self.outbox.seal(tx, prepared)
            advance = self.scripts.advance(instance, history, message, was=instance.version - 1)
            self.outbox.hint()
            return await self.play(tx, advance)
        elif not await self.play(tx, self.scripts.write(instance, history, was=instance.version - 1)):
            return None
        if prepared:
            await self.outbox.write(tx, prepared)
        return Advanced()

    async def _following(self, preparing: Preparing, made: Compiled, decision: Decision) -> Any:
        for follow_up in decision.follow_ups:
            if isinstance(follow_up, (RunStep, RunUndo, SendCommand, SendUndo, ScheduleDeadline)):
                yield self._message(preparing, decision.instance, follow_up)
            elif isinstance(follow_up, Emit) and isinstance(made.source, SagaDef):
                emitted = await _emitted(preparing, made.source, decision.instance, follow_up)
                if emitted is not None:
                    yield of_saga(emitted, decision.instance)

    def _message(self, preparing: Preparing, instance: Instance, follow_up: Any) -> Prepared:
        """It has no key: what waits to be tried again must not keep a deadline or an undo waiting. The row's version
        keeps order."""
        at, event_id = None, new_id()
        if isinstance(follow_up, ScheduleDeadline):
            at = follow_up.at
            event_id = deadline_id(instance.id, follow_up.step, follow_up.attempt, undo=follow_up.undo)
        correlation = None if current.cause() else str(instance.id)
        message = Message(message_of(follow_up), available_at=at, correlation_id=correlation)
        lane = lane_of(None, event_id, preparing.lanes)
        prepared = of_saga(preparing.recorded(message), instance)
        return replace(prepared, event_id=event_id, routes=(Route(destination_of(instance.name), lane, None),))

    async def _cancel(self, tx: Any, made: Compiled, decision: Decision) -> None:
        ids = set(_cancelled(made, decision.instance, decision.follow_ups))
        if ids:
            await self.play(tx, self.scripts.cancel(destination_of(decision.instance.name), sorted(ids)))

    async def _audit_stuck(self, tx: Any, instance: Instance, stuck: ReportStuck) -> None:
        detail = {"name": instance.name, "step": stuck.step or ""}
        entry = SagaAudit("saga", "saga stuck", instance.id, stuck.code, detail, None, str(instance.status))
        await self.play(tx, self.scripts.audit(entry))


def fitting(made: Compiled, instance: Instance) -> Instance:
    """The instance as the code sees it. Raises Misfit."""
    if instance.hash == made.definition.hash:
        return instance
    reason = misfit(made.definition, instance)
    if reason is not None:
        raise Misfit(
            f"saga {instance.name} {instance.process_id!r} was begun by other code: {reason}",
            hint="Deploy code that can continue it; `postlude saga plan` lists what that code must have.",
        )
    return fit(made.definition, instance)


def _read_back(written: Advanced, prepared: Sequence[Prepared]) -> tuple[tuple[Delivery, StoredEvent], ...]:
    """The rows of what was appended, as a read would give them: work that is due, of this saga."""
    if written.seq is None or written.created_at is None:
        return ()
    (one,) = prepared
    (route,) = one.routes
    if one.type != TYPE or one.status != Status.pending:
        return ()
    delivery = Delivery(
        written.seq, one.event_id, route.lane, route.key, one.priority, Status.pending, 0, one.max_attempts
    )
    values = {name: getattr(one, name) for name in _SAME}
    event = StoredEvent(**values, headers=stored_headers(one.headers), created_at=written.created_at)
    return ((delivery, event),)


def of_saga(prepared: Prepared, instance: Instance) -> Prepared:
    return replace(prepared, saga_id=instance.id)


def _cancelled(made: Compiled, instance: Instance, follow_ups: Iterable[FollowUp]) -> Iterator[UUID]:
    names = [step.name for step in made.definition.steps]
    for follow_up in follow_ups:
        if isinstance(follow_up, CancelDeadline):
            yield from _deadlines(made, instance, follow_up.step)
        elif isinstance(follow_up, CancelDeadlines):
            for name in (None, *names):
                yield from _deadlines(made, instance, name)


def _deadlines(made: Compiled, instance: Instance, step: str | None) -> Iterator[UUID]:
    if step is None:
        if made.definition.deadline is not None:
            yield deadline_id(instance.id, None, 0, undo=False)
    elif made.definition[step].deadline is not None:
        state = instance[step]
        for attempt in range(1, state.attempt + 1):
            yield deadline_id(instance.id, step, attempt, undo=False)
        for attempt in range(1, state.undo_attempt + 1):
            yield deadline_id(instance.id, step, attempt, undo=True)


async def _emitted(preparing: Preparing, saga: SagaDef[Any, Any], instance: Instance, emit: Emit) -> Prepared | None:
    try:
        id = saga.deserialize_id(instance.process_id)
        if emit.what == "completed":
            event = await saga.on_completed(id)
        elif emit.what == "failed":
            event = await saga.on_failed(id, emit.error or "")
        else:
            event = await saga.on_late(id, emit.signal or "")
        return None if event is None else preparing.recorded(Message(event))
    except Exception as error:
        raise HookFailed(f"on_{emit.what} of saga {saga.name} raised {type(error).__name__}") from error
