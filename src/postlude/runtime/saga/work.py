"""The work of a saga: done here in one transaction with what follows, called out for, or sent to a participant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from postlude.core.delivery import Fence
from postlude.core.lifecycle import Status
from postlude.core.saga.decide import decide, is_wanted
from postlude.core.saga.decision import RunStep, RunUndo, Work
from postlude.core.saga.instance import Instance
from postlude.ports.destination import Entry
from postlude.runtime.calling import Callee, Calling
from postlude.runtime.context import Context
from postlude.runtime.faults import Taken
from postlude.runtime.lending import CALL_MARGIN
from postlude.runtime.saga.deciding import Deciding, Unwanted
from postlude.runtime.saga.steps import Called, Steps, Told
from postlude.saga.applying import Applied, fitting, of_saga

Run = Callable[[object, Context], Awaitable[object]]


class _SaidErr(Exception):
    """Rolls back what a step did before it said Err."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.told = told


class Working:
    """For one saga."""

    def __init__(self, deciding: Deciding, steps: Steps) -> None:
        self._deciding = deciding
        self._made = deciding.made
        self._parts = deciding.parts
        self._lending = deciding.lending
        self._applying = deciding.applying
        self._steps = steps

    async def do(self, entry: Entry, fence: Fence, work: Work) -> Applied | None:
        if work.step not in self._made.definition.index:
            await self._of_other_code(entry, fence)
            return None
        callee = self._steps.callee(work) if isinstance(work, RunStep | RunUndo) else None
        if callee is None:
            return await self._send(entry, fence, work)
        if callee.transactional:
            return await self._in_transaction(entry, fence, work, callee)
        return await self._calling_out(entry, fence, work, callee)

    async def _of_other_code(self, entry: Entry, fence: Fence) -> None:
        """Work of a step that the code does not have: an ended run has no use for it, others are left alone."""

        async def look(handle: Any) -> None:
            instance = await self._deciding.take(handle, entry, fence)
            if instance is not None and not instance.status.is_end:
                fitting(self._made, instance)

        await self._lending.bookkeeping(look)

    async def _send(self, entry: Entry, fence: Fence, work: Work) -> Applied | None:
        """A participant's command or compensation; what comes of it is an event."""

        async def send(handle: Any) -> Applied | None:
            await self._lending.settle(handle, entry.delivery, fence, CALL_MARGIN)
            instance = await self._deciding.load(handle, entry, lock=True)
            if instance is None or not is_wanted(instance, work):
                return None
            message = await self._steps.message(fitting(self._made, instance), work)
            if isinstance(message, Told):
                return await self._deciding.signal(handle, instance, message.signal)
            preparing = await self._applying.outbox.join(handle)
            await self._applying.outbox.write(handle, [of_saga(preparing.one(message), instance)])
            return None

        return self._deciding.tell(await self._lending.bookkeeping(send))

    # ------------------------------------------------------------ in one transaction

    async def _in_transaction(self, entry: Entry, fence: Fence, work: Work, callee: Callee) -> Applied | None:
        calling = Calling(callee, self._parts.lending)
        opening = self._parts.lending.transactions()
        applied: Applied | None = None

        async def do(handle: Any, run: Run) -> Applied | None:
            instance = await self._deciding.take(handle, entry, fence, calling.limit)
            if instance is None or not is_wanted(instance, work):
                return None
            instance = fitting(self._made, instance)
            told = await self._called(handle, entry, callee, await self._steps.call(instance, work), run)
            return await self._applied(handle, instance, work, told)

        async def in_thread(require_in_time: Callable[[], None]) -> None:
            nonlocal applied
            async with self._lending.transaction(opening) as handle:
                applied = await do(handle, calling.run_here)
                require_in_time()

        try:
            if opening.blocks and not callee.is_async:
                await calling.in_one_thread(in_thread, calling.limit)
            else:
                async with self._lending.place(), self._lending.transaction(opening) as handle:
                    applied = await do(handle, lambda argument, ctx: calling.run(argument, ctx, calling.limit))
        except _SaidErr as said:
            return await self._deciding.decide(entry, fence, said.told.signal, said.told.events)
        except Unwanted:
            await self._deciding.settle(entry, fence)
        return self._deciding.tell(applied)

    async def _called(self, handle: Any, entry: Entry, callee: Callee, call: Called | Told, run: Run) -> Told:
        if isinstance(call, Told):
            return call
        context = self._context(entry, callee, handle, call)
        told = await self._lending.lend(handle, lambda: run(call.argument, context), call.read)
        if told.is_err:
            raise _SaidErr(told)
        return told

    async def _applied(self, handle: Any, instance: Instance, work: Work, told: Told) -> Applied:
        """On the instance as it was read before the work; else, if the work is still wanted, as it is now."""
        applying = self._applying
        decision = decide(self._made.definition, instance, told.signal, applying.times.now())
        applied = await applying.apply(handle, self._made, decision, told.events)
        if applied is not None:
            return applied
        found = await applying.play(handle, applying.scripts.get(instance.id, lock=True))
        if found is None or not is_wanted(found, work):
            raise Unwanted
        again = decide(self._made.definition, fitting(self._made, found), told.signal, applying.times.now())
        applied = await applying.apply(handle, self._made, again, told.events)
        if applied is None:
            raise Taken
        return applied

    # ------------------------------------------------------------ calling out

    async def _calling_out(self, entry: Entry, fence: Fence, work: Work, callee: Callee) -> Applied | None:
        """The intent is durable already. Effect first, with its key; then settle, decide and write."""
        saga_id = entry.event.saga_id
        instance = None if saga_id is None else await self._parts.sagas.get(saga_id)
        if instance is None or not is_wanted(instance, work):
            await self._deciding.settle(entry, fence)
            return None
        call = await self._steps.call(fitting(self._made, instance), work)
        if isinstance(call, Told):
            return await self._deciding.decide(entry, fence, call.signal, call.events)
        await self._claim(entry, fence, callee.timeout)
        context = self._context(entry, callee, None, call)
        returned = await Calling(callee, self._parts.lending).run(call.argument, context, callee.timeout)
        return await self._settle_call(entry, fence, context, call.read(returned))

    async def _settle_call(self, entry: Entry, fence: Fence, context: Context, told: Told) -> Applied | None:
        async def settle(handle: Any) -> Applied | None:
            instance = await self._deciding.take(handle, entry, fence)
            for appended, options in context.collected:
                await self._parts.lending.outbox.append(handle, appended, **options)
            if instance is None:
                return None
            return await self._deciding.signal(handle, instance, told.signal, told.events)

        return self._deciding.tell(await self._lending.persist(settle))

    async def _claim(self, entry: Entry, fence: Fence, timeout: float) -> None:
        """Commit the attempt before the call: whoever takes the lane over leaves it alone for that long."""
        delivery = entry.delivery
        if delivery.started:
            return
        if delivery.seq not in await self._parts.settling.start(fence, [delivery], timeout + CALL_MARGIN):
            raise Taken
        delivery.status, delivery.started = Status.claimed, True
        delivery.attempts += 1

    def _context(self, entry: Entry, callee: Callee, handle: Any, call: Called) -> Context:
        outbox = self._parts.lending.outbox
        return Context(entry.event, callee.name, attempt_of(entry), handle, outbox, task=call.task)


def attempt_of(entry: Entry) -> int:
    return entry.delivery.attempts + (0 if entry.delivery.started else 1)
