"""A handler in this process as a destination: its effect, its events and the settling are one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from postlude.core.delivery import Fence
from postlude.core.outcome import SETTLED, Err, Ok, Outcome, Rejected
from postlude.core.sealing import HEADER
from postlude.core.upcast import decode_event
from postlude.outbox.current import handling
from postlude.outbox.handlers import Handler
from postlude.ports.destination import Entry, Terms
from postlude.runtime.calling import Calling
from postlude.runtime.context import Context
from postlude.runtime.faults import fault_of, outcome_of
from postlude.runtime.lending import CALL_MARGIN, Lending, LendingParts, OverEarly
from postlude.runtime.opening import plain
from postlude.runtime.transactions import Opening

GRACE = 5.0
"""How long after its timeout a handler may take to notice."""
Result = Ok[Any] | Err[Any] | None


class _Undone(Exception):
    """Rolls back to the savepoint before an Err."""

    def __init__(self, result: Err[Any]) -> None:
        super().__init__()
        self.result = result


class HandlerDestination:
    def __init__(self, handler: Handler, parts: LendingParts, *, lanes: int, parallel: int) -> None:
        self._handler = handler
        self._parts = parts
        self._lending = Lending(handler.name, handler.destination, parts)
        self._calling = Calling(handler, parts)
        self.terms = Terms(
            name=handler.destination,
            kind="handler",
            lanes=lanes,
            batch=1,
            parallel=handler.concurrency or parallel,
            patience=handler.timeout + CALL_MARGIN + GRACE,
            claim_for=None if handler.transactional else handler.timeout + CALL_MARGIN,
        )

    async def open(self) -> None:
        await self._lending.try_out(in_thread=not (self._handler.is_async and self._handler.transactional))

    async def close(self) -> None:
        """Nothing to close."""

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:
        return [await self._one(entry, fence) for entry in entries]

    async def _one(self, entry: Entry, fence: Fence) -> Outcome:
        keep = self._parts.keep_messages
        is_sealed = HEADER in entry.event.headers
        try:
            entry = Entry(entry.delivery, await plain(entry.event, self._parts.open))
        except Exception as error:  # noqa: BLE001 - a key service, or the database
            return outcome_of(error, self._handler.name, entry, keep_messages=keep)
        keep = keep and not is_sealed  # a message would hold what was opened, and outlive its key
        try:
            event = decode_event(self._handler.spec, entry.event.version, entry.event.payload)
        except Exception as error:  # noqa: BLE001 - an upcast may raise anything; the stored bytes will not change
            return Rejected(fault_of(error, keep_messages=keep))
        work = self._in_transaction if self._handler.transactional else self._calling_out
        try:
            with handling(entry.event):
                await work(entry, event, fence)
            await self._lending.require_commits(entry)
        except OverEarly as error:
            return await self._lending.after_the_end(error, entry, keep_messages=keep)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its entry's outcome
            return outcome_of(error, self._handler.name, entry, keep_messages=keep)
        self._lending.forget(entry)
        return SETTLED

    async def _in_transaction(self, entry: Entry, event: object, fence: Fence) -> None:
        """Lock and settle first, then the handler, then its events: one commit or none."""
        limit = self._calling.limit
        opening = self._parts.transactions()
        if opening.blocks and not self._handler.is_async:
            await self._in_one_thread(opening, entry, event, fence)
            return
        async with self._lending.place(), self._lending.transaction(opening) as handle:
            await self._lending.settle(handle, entry.delivery, fence, limit)
            context = self._context(entry, handle)
            await self._handle(handle, lambda: self._calling.run(event, context, limit))

    async def _in_one_thread(self, opening: Opening, entry: Entry, event: object, fence: Fence) -> None:
        limit = self._calling.limit

        async def all_of_it(require_in_time: Callable[[], None]) -> None:
            async with self._lending.transaction(opening) as handle:
                await self._lending.settle(handle, entry.delivery, fence, limit)
                context = self._context(entry, handle)
                await self._handle(handle, lambda: self._calling.run_here(event, context))
                require_in_time()

        await self._calling.in_one_thread(all_of_it, limit)

    async def _calling_out(self, entry: Entry, event: object, fence: Fence) -> None:
        """The attempt is committed already. Effect first, then settle and events in one transaction."""
        context = self._context(entry, None)
        result = self._handler.returns.check(await self._calling.run(event, context, self._handler.timeout))

        async def settle(handle: Any) -> None:
            await self._lending.settle(handle, entry.delivery, fence, CALL_MARGIN)
            for appended, options in context.collected:
                await self._parts.outbox.append(handle, appended, **options)
            await self._append(handle, result)

        await self._lending.persist(settle)

    async def _handle(self, handle: Any, call: Callable[[], Awaitable[object]]) -> None:
        returns = self._handler.returns

        def check(returned: object) -> Result:
            result = returns.check(returned)
            if isinstance(result, Err):
                raise _Undone(result)
            return result

        try:
            result = await self._lending.lend(handle, call, check, savepoint=returns.may_fail)
        except _Undone as undone:
            result = undone.result
        await self._append(handle, result)

    async def _append(self, handle: Any, result: Result) -> None:
        if result is not None and result.value is not None:
            await self._parts.outbox.append(handle, result.value)

    def _context(self, entry: Entry, handle: Any) -> Context:
        attempt = entry.delivery.attempts + (0 if entry.delivery.started else 1)
        return Context(entry.event, self._handler.name, attempt, handle, self._parts.outbox)
