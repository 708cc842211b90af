"""A handler in this process as a destination: its effect, its events and the settling are one transaction."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from postlude.core.codec import decode
from postlude.core.delivery import Delivery, Fence
from postlude.core.outcome import HELD, SETTLED, Err, Failed, Fault, Ok, Outcome, Park, Parked, Reject, Rejected
from postlude.errors import (
    ConfigurationError,
    ConnectionClosed,
    ContractViolation,
    DatabaseUnavailable,
    HandlerTimeout,
    PostludeError,
    UnknownEvent,
    Unroutable,
)
from postlude.outbox.current import handling
from postlude.outbox.handlers import Handler
from postlude.outbox.outbox import Handles, Outbox
from postlude.ports.destination import Entry, Terms
from postlude.ports.store import Scripts, Settling
from postlude.runtime.context import Context, SyncContext
from postlude.runtime.suspension import Suspension
from postlude.runtime.threads import Threads
from postlude.runtime.transactions import Transactions

log = logging.getLogger("postlude.handling")

CALL_MARGIN = 15.0
"""How long after its timeout a call of unknown outcome is left alone before it is made again."""
SETTLE_DELAYS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
GRACE = 5.0
"""How long after its timeout a handler may take to notice."""
REJECTED = (Reject, ContractViolation, ConfigurationError, UnknownEvent, Unroutable)
"""No further attempt could help."""
NOT_THEIRS = ("asyncio", "asyncpg", "aiosqlite", "postlude.enlist", "postlude.outbox", "postlude.runtime")
SERIALISATION = ("40001", "40P01")
LOST_CONNECTION = ("08", "57P")  # not 57014: a statement that takes too long would be tried for ever


class HandlingParts(msgspec.Struct, frozen=True):
    """What every handler of an app shares."""

    outbox: Outbox
    scripts: Scripts
    settling: Settling
    handles: Handles
    transactions: Transactions
    abandon: Callable[[Any], None]
    """Takes a transaction's handle away from a thread that hangs."""
    threads: Threads
    keep_messages: bool
    transaction_limit: float | None = None
    """SQLite has one writer: how long a handler may hold it."""
    places: asyncio.Semaphore | None = None
    """How many handlers may hold a connection of our own pool: relays, ticks and appends need some too."""


class _Undone(Exception):
    """Rolls back to the savepoint before an Err."""


class _Committed(ContractViolation):
    """The handler ended the transaction it was lent, and with it committed the settling."""


class _Taken(Exception):
    """The delivery is busy or not ours: nothing was done."""


class HandlerDestination:
    def __init__(self, handler: Handler, parts: HandlingParts, *, lanes: int, parallel: int) -> None:
        self._handler = handler
        self._parts = parts
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
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:
        return [await self._one(entry, fence) for entry in entries]

    async def _one(self, entry: Entry, fence: Fence) -> Outcome:
        try:
            event = decode(self._handler.spec.cls, entry.event.payload)
        except (ValueError, msgspec.MsgspecError) as error:
            return Rejected(self._fault(error))
        work = self._in_transaction if self._handler.transactional else self._calling_out
        try:
            with handling(entry.event):
                await work(entry, event, fence)
        except _Committed as error:
            fault = msgspec.json.encode(self._fault(error)).decode()
            if not await self._parts.settling.condemn(self._handler.destination, entry.delivery, fault):
                return HELD  # the row is still there: nothing was committed, the connection was lost
            log.error("%s", error.args[0])  # noqa: TRY400 - the place is not ours
            return SETTLED
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its entry's outcome
            return self._outcome(error, entry)
        return SETTLED

    def _outcome(self, error: Exception, entry: Entry) -> Outcome:
        if isinstance(error, _Taken):
            return HELD
        if isinstance(error, Park):
            return Parked(error.until)
        if isinstance(error, REJECTED):
            return Rejected(self._fault(error))
        if _is_transient(error):
            log.info("%s: %s is no fault of the entry; it is tried again", self._handler.name, type(error).__name__)
            return HELD
        log.warning("%s failed on event %s: %s", self._handler.name, entry.event.event_id, type(error).__name__)
        return Failed(self._fault(error))

    # ------------------------------------------------------------ the two ways

    async def _in_transaction(self, entry: Entry, event: object, fence: Fence) -> None:
        """Lock and settle first, then the handler, then its events: one commit or none."""
        limit = min(self._handler.timeout, self._parts.transaction_limit or self._handler.timeout)
        async with self._place(), self._transaction() as handle:
            await self._settle(handle, entry.delivery, fence, limit)
            context = self._context(entry, handle)
            await self._handle(event, context, handle, limit)

    async def _calling_out(self, entry: Entry, event: object, fence: Fence) -> None:
        """The attempt is committed already. Effect first, then settle and events in one transaction."""
        context = self._context(entry, None)
        result = self._handler.returns.check(await self._run(event, context, self._handler.timeout))
        for delay in SETTLE_DELAYS:
            try:
                await self._settle_call(entry, context, result, fence)
            except DatabaseUnavailable:
                # The effect has happened: only the bookkeeping is repeated, never the call.
                await asyncio.sleep(delay)
            else:
                return
        await self._settle_call(entry, context, result, fence)

    async def _settle_call(
        self, entry: Entry, context: Context, result: Ok[Any] | Err[Any] | None, fence: Fence
    ) -> None:
        async with self._transaction() as handle:
            await self._settle(handle, entry.delivery, fence, CALL_MARGIN)
            for appended, options in context.collected:
                await self._parts.outbox.append(handle, appended, **options)
            if result is not None and result.value is not None:
                await self._parts.outbox.append(handle, result.value)

    async def _handle(self, event: object, context: Context, handle: Any, limit: float) -> None:
        returns = self._handler.returns
        result: Ok[Any] | Err[Any] | None = None
        try:
            async with self._savepoint(handle):
                returned = await self._run(event, context, limit)
                self._require_open(handle)
                result = returns.check(returned)
                if isinstance(result, Err):
                    raise _Undone
        except _Undone:
            pass
        if result is not None and result.value is not None:
            await self._parts.outbox.append(handle, result.value)

    # ------------------------------------------------------------ pieces

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Not for ever: the wait is part of the time after which a worker is taken for hung."""
        places = self._parts.places
        if places is None:
            yield
            return
        try:
            async with asyncio.timeout(CALL_MARGIN):
                await places.acquire()
        except TimeoutError as error:
            raise DatabaseUnavailable("other handlers hold every connection that handlers may have") from error
        try:
            yield
        finally:
            places.release()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        async with self._parts.transactions() as handle:
            adapter = self._parts.handles.adapter(handle)
            adapter.require_transaction(handle)
            try:
                yield handle
            except Exception as error:
                if isinstance(error, _Committed) or not adapter.is_closed(handle):
                    raise
                raise DatabaseUnavailable("the connection was lost in a handler's transaction") from error

    @asynccontextmanager
    async def _savepoint(self, handle: Any) -> AsyncIterator[None]:
        if self._handler.returns.may_fail:
            async with self._parts.handles.adapter(handle).savepoint(handle):
                yield
        else:
            yield

    async def _settle(self, handle: Any, delivery: Delivery, fence: Fence, idle: float) -> None:
        adapter = self._parts.handles.adapter(handle)
        if not await adapter.play(handle, self._parts.scripts.settle_handled(fence, delivery, idle)):
            raise _Taken

    def _require_open(self, handle: Any) -> None:
        if not self._parts.handles.adapter(handle).is_in_transaction(handle):
            raise _Committed(
                f"{self._handler.name} committed or closed the transaction it was lent",
                hint="Leave commit and rollback to Postlude; for work outside a transaction use transactional=False.",
            )

    async def _run(self, event: object, context: Context, limit: float) -> object:
        if not self._handler.is_async:
            sync = SyncContext(context, asyncio.get_running_loop())
            call = partial(self._handler.function, *((event, sync) if self._handler.takes_context else (event,)))
            started = await self._parts.threads.start(call)
        else:
            started = self._handler.function(*((event, context) if self._handler.takes_context else (event,)))
            if context.tx is not None and self._parts.transaction_limit is not None:
                started = Suspension(started, self._warn_of_waiting)
        try:
            async with asyncio.timeout(limit):
                return await started
        except TimeoutError as error:
            if not self._handler.is_async and context.tx is not None:
                self._parts.abandon(context.tx)
            raise self._timeout(limit) from error

    def _warn_of_waiting(self) -> None:
        log.warning(
            "%s waits inside its transaction and holds SQLite's only writer meanwhile; consider transactional=False",
            self._handler.name,
        )

    def _timeout(self, limit: float) -> HandlerTimeout:
        if limit < self._handler.timeout:
            return HandlerTimeout(
                f"{self._handler.name} held the only writer of SQLite for more than {limit:g} s",
                hint="Declare it with transactional=False, or make it shorter.",
            )
        return HandlerTimeout(f"{self._handler.name} took more than {limit:g} s")

    def _context(self, entry: Entry, handle: Any) -> Context:
        attempt = entry.delivery.attempts + (0 if entry.delivery.started else 1)
        return Context(entry.event, self._handler.name, attempt, handle, self._parts.outbox)

    def _fault(self, error: BaseException) -> Fault:
        kept = str(error.args[0]) if error.args else None
        return Fault(
            kind=next(cls.__name__ for cls in type(error).__mro__ if not cls.__name__.startswith("_")),
            code=getattr(error, "code", None) if isinstance(error, PostludeError) else None,
            at=raised_at(error),
            message=kept if self._parts.keep_messages else None,
        )


def _is_transient(error: BaseException) -> bool:
    """Serialisation failures, deadlocks and lost connections burn no attempt."""
    code = getattr(error, "sqlstate", None)
    if isinstance(code, str) and (code in SERIALISATION or code.startswith(LOST_CONNECTION)):
        return True
    return isinstance(error, (DatabaseUnavailable, ConnectionClosed))


def raised_at(error: BaseException) -> str | None:
    """`module:function:line` of the innermost frame that is neither ours nor a driver's; says where, not about whom."""
    frames = [
        (str(frame.f_globals.get("__name__", "?")), frame.f_code.co_name, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    theirs = [frame for frame in frames if not frame[0].startswith(NOT_THEIRS)] or frames
    return "{}:{}:{}".format(*theirs[-1]) if theirs else None
