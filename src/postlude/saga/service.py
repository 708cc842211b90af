"""Sagas for whoever starts, moves, watches or helps them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.event import spec_of
from postlude.core.saga.decide import decide
from postlude.core.saga.instance import Instance, SagaStatus, new_instance, next_generation
from postlude.core.saga.signal import Cancel, Compensate, Order, RetryStep, SkipStep, Started
from postlude.errors import ConfigurationError, Misfit, SagaNotFound, SagaRefused, StaleVersion
from postlude.insight.insight import as_uuid
from postlude.outbox.prepare import Message, new_id
from postlude.ports.sagas import SagaAudit, Sagas
from postlude.saga.applying import Applied, Applying, Stuck, of_saga
from postlude.saga.compiled import Compiled, Declared
from postlude.saga.plain import Saga
from postlude.saga.registry import Registry
from postlude.saga.typed import SagaDef, arguments_of
from postlude.saga.values import kept
from postlude.saga.view import SagaView, view_of

HISTORY = 1000
"""Lines of history that a view has, the last ones."""
POLL_FIRST, POLL_LONGEST = 0.02, 0.5
Saying = Callable[[Stuck], None]


class ServiceParts(msgspec.Struct, frozen=True):
    """The database's side, opened when it is first needed: sagas are registered before that."""

    applying: Applying
    sagas: Sagas
    open: Callable[[], AbstractAsyncContextManager[Any]]
    """A transaction of our own; the app is started by then."""
    start: Callable[[], Awaitable[None]]
    told: Callable[[list[Stuck]], None]


class SagaService:
    """Of one database."""

    def __init__(self, registry: Registry, parts: Callable[[], ServiceParts], hooks: list[Saying]) -> None:
        self._registry = registry
        self._made = parts
        self._parts_made: ServiceParts | None = None
        self._hooks = hooks

    @property
    def _parts(self) -> ServiceParts:
        if self._parts_made is None:
            self._parts_made = self._made()
        return self._parts_made

    # ------------------------------------------------------------ declaring

    def register(self, saga: Declared) -> None:
        """Check it and let this app run it: a `SagaDef` instance or class, or a `Saga`. Refusals name the step."""
        self._registry.add(saga)

    def on_stuck(self, hook: Saying) -> Saying:
        """Call it for every saga that needs an operator, after that is durable, in a thread of its own."""
        self._hooks.append(hook)
        return hook

    # ------------------------------------------------------------ moving

    async def start(self, tx: Any, saga: Declared, given: object, *, id: Any = None) -> UUID:
        """Begin a run in the caller's transaction: of a plain saga with its state, of a typed one with its trigger.
        `id` is the process; a typed saga finds it in the trigger, a plain one that is given none has its own."""
        made, applying = self._registry.of(saga), self._parts.applying
        saga_id = new_id()
        process_id, generation = self._process(made, given, id), 1
        await applying.outbox.join(tx)
        if process_id is not None:
            previous = await applying.play(tx, applying.scripts.find(made.definition.name, process_id, lock=False))
            following = next_generation(previous)
            if following is None:
                raise _runs(made, process_id)
            generation = following
        now = applying.times.now()
        fresh = new_instance(made.definition, saga_id, process_id or str(saga_id), generation, kept(given), now)
        if not await applying.apply(tx, made, decide(made.definition, fresh, Started(), now)):
            raise _runs(made, fresh.process_id)
        return saga_id

    async def signal(self, tx: Any, saga_id: UUID | str, event: object) -> UUID:
        """Append an event that the saga waits for, in the caller's transaction; gives the event's id. Too early it is
        kept, after the end it is recorded."""
        applying = self._parts.applying
        preparing = await applying.outbox.join(tx)
        wanted = as_uuid(saga_id, "saga")
        instance = await applying.play(tx, applying.scripts.get(wanted, lock=False))
        if instance is None:
            raise _not_found(wanted)
        self._require_awaited(instance, event)
        prepared = of_saga(preparing.recorded(Message(event)), instance)
        return (await applying.outbox.write(tx, [prepared]))[0]

    # ------------------------------------------------------------ looking

    async def get(self, saga_id: UUID | str) -> SagaView:
        """Where it stands, with its history."""
        wanted, sagas = as_uuid(saga_id, "saga"), self._parts.sagas
        await self._parts.start()
        instance = await sagas.get(wanted)
        if instance is None:
            raise _not_found(wanted)
        history = await sagas.history(wanted, limit=HISTORY)
        return view_of(self._registry.named(instance.name), instance, history)

    async def wait(self, saga_id: UUID | str, timeout: float | None = None) -> SagaView:
        """Until it has ended, or is stuck, which only an operator changes. Raises TimeoutError."""
        wanted, delay = as_uuid(saga_id, "saga"), POLL_FIRST
        await self._parts.start()
        async with asyncio.timeout(timeout):
            while True:
                instance = await self._parts.sagas.get(wanted)
                if instance is None:
                    raise _not_found(wanted)
                if instance.status.is_end or instance.status is SagaStatus.stuck:
                    return await self.get(wanted)
                await asyncio.sleep(delay)
                delay = min(delay * 1.5, POLL_LONGEST)

    # ------------------------------------------------------------ helping

    async def retry(self, saga_id: UUID | str, *, step: str | None = None, actor: str, reason: str) -> SagaView:
        """Begin again what failed; a named step also when it runs and nothing is heard of it."""
        return await self._order(saga_id, RetryStep(actor, reason, step))

    async def skip(
        self, saga_id: UUID | str, *, value: object = None, step: str | None = None, actor: str, reason: str
    ) -> SagaView:
        """Take a step for done with this value, or its undo for done."""
        return await self._order(saga_id, SkipStep(actor, reason, step, kept(value)))

    async def compensate(self, saga_id: UUID | str, *, step: str | None = None, actor: str, reason: str) -> SagaView:
        """Go back: before the pivot, and wherever the saga is stuck on its way forward."""
        _require_no_step(step)
        return await self._order(saga_id, Compensate(actor, reason))

    async def cancel(self, saga_id: UUID | str, *, step: str | None = None, actor: str, reason: str) -> SagaView:
        """Go back; refused from the pivot on."""
        _require_no_step(step)
        return await self._order(saga_id, Cancel(actor, reason))

    async def _order(self, saga_id: UUID | str, order: Order) -> SagaView:
        if not order.actor.strip() or not order.reason.strip():
            raise ConfigurationError("an action needs an actor and a reason", hint="They stand in the audit record.")
        wanted, parts = as_uuid(saga_id, "saga"), self._parts
        await parts.start()
        async with parts.open() as tx:
            applied = await self._apply(tx, wanted, order)
        parts.told(applied.stuck)
        return await self.get(wanted)

    async def _apply(self, tx: Any, saga_id: UUID, order: Order) -> Applied:
        applying = self._parts.applying
        instance = await applying.play(tx, applying.scripts.get(saga_id, lock=True))
        if instance is None:
            raise _not_found(saga_id)
        try:
            applied = await applying.signal(tx, self._registry.of(instance.name), instance, order)
        except Misfit as error:
            raise SagaRefused(str(error.args[0]), hint=error.hint) from error
        if applied is None or not applied.written:
            raise StaleVersion(f"saga {saga_id} changed again and again meanwhile")
        if applied.decision.ignored is not None:
            raise SagaRefused(applied.decision.why or "the order cannot be followed")
        detail: dict[str, Any] = {"name": instance.name, "status": instance.status}
        if isinstance(order, RetryStep | SkipStep) and order.step is not None:
            detail["step"] = order.step
        if isinstance(order, SkipStep):
            detail["value"] = order.value is not None  # whether there was one: it may be anything
        action = f"saga {type(order).__name__.removesuffix('Step').lower()}"
        statuses = str(instance.status), str(applied.decision.instance.status)
        entry = SagaAudit(order.actor, action, saga_id, order.reason, detail, *statuses)
        await applying.play(tx, applying.scripts.audit(entry))
        return applied

    # ------------------------------------------------------------ inside

    def _process(self, made: Compiled, given: object, id: Any) -> str | None:
        source = made.source
        expected = source.state if isinstance(source, Saga) else arguments_of(type(source))[0]
        if not isinstance(given, expected):
            raise ConfigurationError(
                f"saga {made.definition.name} starts with {expected.__name__}, not {type(given).__name__}"
            )
        if isinstance(source, SagaDef):
            return source.serialize_id(source.extract_id(given) if id is None else id)
        return None if id is None else str(id)

    def _require_awaited(self, instance: Instance, event: object) -> None:
        made = self._registry.of(instance.name)
        spec = spec_of(event)
        replies = {one for step in made.definition.steps for one in msgspec.structs.astuple(step.replies)}
        if not isinstance(made.source, SagaDef) or spec.type not in replies:
            raise SagaRefused(f"saga {instance.name} does not wait for {type(event).__name__} anywhere")
        process_id = made.source.process_id(event)
        if process_id != instance.process_id:
            raise SagaRefused(
                f"the event belongs to {process_id!r}, and saga {instance.id} to {instance.process_id!r}",
                hint=f"Its {made.source.correlation_field} says whose it is.",
            )


def _require_no_step(step: str | None) -> None:
    if step is not None:
        raise SagaRefused("a saga goes back as a whole", hint="Leave step= out.")


def _runs(made: Compiled, process_id: str) -> SagaRefused:
    return SagaRefused(
        f"saga {made.definition.name} runs for {process_id!r} already",
        hint="A process may run again after its end; await app.sagas.wait(...) for it, or give another id.",
    )


def _not_found(saga_id: UUID) -> SagaNotFound:
    return SagaNotFound(f"there is no saga {saga_id}")
