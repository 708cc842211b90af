"""A handler in this process as a destination: its effect, its events and the settling are one transaction."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.at_once import at_once
from postlude.core.delivery import Delivery, Fence
from postlude.core.outcome import HELD, SETTLED, Err, Failed, Fault, Ok, Outcome, Park, Parked, Reject, Rejected
from postlude.core.sqlstate import sqlstate_of, wrapped
from postlude.core.upcast import decode_event
from postlude.errors import (
    ConfigurationError,
    ConnectionClosed,
    ContractViolation,
    DatabaseUnavailable,
    HandlerTimeout,
    NotInTransaction,
    PostludeError,
    UnknownEvent,
    Unroutable,
)
from postlude.outbox.current import handling
from postlude.outbox.handlers import Handler
from postlude.outbox.outbox import Handles, Outbox
from postlude.ports.destination import Entry, Terms
from postlude.ports.enlist import Ended
from postlude.ports.store import Scripts, Settling, Story
from postlude.runtime.context import Context, SyncContext
from postlude.runtime.suspension import Suspension
from postlude.runtime.threads import Threads
from postlude.runtime.transactions import Opening, Transactions

log = logging.getLogger("postlude.handling")

CALL_MARGIN = 15.0
"""How long after its timeout a call of unknown outcome is left alone before it is made again."""
SETTLE_DELAYS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
LOST_BY_CHANCE = 3
"""A handler that returns well and leaves a closed connection behind so many times has closed it itself."""
GRACE = 5.0
"""How long after its timeout a handler may take to notice."""
REJECTED = (Reject, ContractViolation, ConfigurationError, UnknownEvent, Unroutable)
"""No further attempt could help."""
NOT_THEIRS = (
    "asyncio", "asyncpg", "psycopg", "aiosqlite", "postlude.enlist", "postlude.outbox", "postlude.runtime",
    "postlude.storage",
)  # fmt: skip
SERIALISATION = ("40001", "40P01")
LOST_CONNECTION = ("08", "57P")  # not 57014: a statement that takes too long would be tried for ever


class HandlingParts(msgspec.Struct, frozen=True):
    """What every handler of an app shares."""

    outbox: Outbox
    scripts: Scripts
    settling: Settling
    handles: Handles
    transactions: Transactions
    story: Callable[[UUID], Awaitable[Story | None]]
    """What the database says of an event."""
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


class _OverEarly(ContractViolation):
    """The handler ended the transaction it was lent; the settling is committed with it, or rolled back."""


class _Taken(Exception):
    """The delivery is busy or not ours: nothing was done."""


class HandlerDestination:
    def __init__(self, handler: Handler, parts: HandlingParts, *, lanes: int, parallel: int) -> None:
        self._handler = handler
        self._parts = parts
        self._lost: Counter[int] = Counter()
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
        """Try the transactions that were given: a mistake in them is told now, not at the first delivery."""
        transactions = self._parts.transactions
        in_thread = not (self._handler.is_async and self._handler.transactional)
        if in_thread in transactions.tried:
            return
        opening = transactions()

        async def enter() -> None:
            async with self._transaction(opening):
                pass

        try:
            if opening.blocks and in_thread:
                await (await self._parts.threads.start(lambda: at_once(enter())))
            else:
                await enter()
        except NotInTransaction as error:
            raise ConfigurationError(
                f"the transactions that were given to Postlude are none: {error.args[0]}", hint=error.hint
            ) from error
        transactions.tried.add(in_thread)

    async def close(self) -> None:
        """Nothing to close."""

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:
        return [await self._one(entry, fence) for entry in entries]

    async def _one(self, entry: Entry, fence: Fence) -> Outcome:
        try:
            event = decode_event(self._handler.spec, entry.event.version, entry.event.payload)
        except Exception as error:  # noqa: BLE001 - an upcast may raise anything; the stored bytes will not change
            return Rejected(self._fault(error))
        work = self._in_transaction if self._handler.transactional else self._calling_out
        try:
            with handling(entry.event):
                await work(entry, event, fence)
            await self._require_commits(entry)
        except _OverEarly as error:
            return await self._after_the_end(error, entry)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its entry's outcome
            return self._outcome(error, entry)
        self._lost.pop(entry.delivery.seq, None)
        return SETTLED

    async def _after_the_end(self, error: _OverEarly, entry: Entry) -> Outcome:
        """A handler ended its transaction: was the settling committed with it?"""
        fault = msgspec.json.encode(self._fault(error)).decode()
        try:
            is_dead = await self._parts.settling.condemn(self._handler.destination, entry.delivery, fault)
        except DatabaseUnavailable:
            return HELD
        if is_dead:
            log.error("%s", error.args[0])
            return SETTLED
        if isinstance(error.__cause__, DatabaseUnavailable):
            self._lost[entry.delivery.seq] += 1
            if self._lost[entry.delivery.seq] < LOST_BY_CHANCE:
                return HELD
        elif isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, Ended):
            return self._outcome(error.__cause__, entry)
        self._lost.pop(entry.delivery.seq, None)
        return Rejected(self._fault(error))

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
        opening = self._parts.transactions()
        if opening.blocks and not self._handler.is_async:
            await self._in_one_thread(opening, entry, event, fence, limit)
            return
        async with self._place(), self._transaction(opening) as handle:
            await self._settle(handle, entry.delivery, fence, limit)
            context = self._context(entry, handle)
            await self._handle(handle, lambda: self._run(event, context, limit))

    async def _in_one_thread(self, opening: Opening, entry: Entry, event: object, fence: Fence, limit: float) -> None:
        """Some handles belong to a thread (Django's, for one): begin, lock, handler and commit all happen there."""
        is_late = threading.Event()

        async def all_of_it() -> None:
            async with self._transaction(opening) as handle:
                await self._settle(handle, entry.delivery, fence, limit)
                context = self._context(entry, handle)
                await self._handle(handle, lambda: self._called_here(event, context))
                if is_late.is_set():  # the verdict is given already: roll back
                    raise self._timeout(limit)

        started = await self._parts.threads.start(lambda: at_once(all_of_it()))
        try:
            async with asyncio.timeout(limit):
                await started
        except TimeoutError as error:
            is_late.set()
            raise self._timeout(limit) from error

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
        opening = self._parts.transactions()

        async def settle() -> None:
            async with self._transaction(opening) as handle:
                await self._settle(handle, entry.delivery, fence, CALL_MARGIN)
                for appended, options in context.collected:
                    await self._parts.outbox.append(handle, appended, **options)
                if result is not None and result.value is not None:
                    await self._parts.outbox.append(handle, result.value)

        await (await self._parts.threads.start(lambda: at_once(settle())) if opening.blocks else settle())

    async def _handle(self, handle: Any, call: Callable[[], Awaitable[object]]) -> None:
        returns = self._handler.returns
        result: Ok[Any] | Err[Any] | None = None
        mark = self._parts.handles.adapter(handle).mark(handle)
        try:
            async with self._savepoint(handle, mark):
                returned = await self._lending(handle, mark, call)
                result = returns.check(returned)
                if isinstance(result, Err):
                    raise _Undone
        except _Undone:
            pass
        except Ended as error:
            raise self._over_early() from error
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
    async def _transaction(self, opening: Opening) -> AsyncIterator[Any]:
        async with opening.context as handle:
            adapter = self._parts.handles.adapter(handle)
            adapter.require_transaction(handle)
            try:
                yield handle
            except Exception as error:
                if isinstance(error, _OverEarly) or not adapter.is_closed(handle):
                    raise
                raise DatabaseUnavailable("the connection was lost in a handler's transaction") from error

    @asynccontextmanager
    async def _savepoint(self, handle: Any, mark: object | None) -> AsyncIterator[None]:
        if self._handler.returns.may_fail or mark is None:
            async with self._parts.handles.adapter(handle).savepoint(handle):
                yield
        else:
            yield

    async def _settle(self, handle: Any, delivery: Delivery, fence: Fence, idle: float) -> None:
        adapter = self._parts.handles.adapter(handle)
        if not await adapter.play(handle, self._parts.scripts.settle_handled(fence, delivery, idle)):
            raise _Taken

    async def _lending(self, handle: Any, mark: object | None, call: Callable[[], Awaitable[object]]) -> object:
        """The handler with a transaction that is not its own to end."""
        adapter = self._parts.handles.adapter(handle)

        def is_as_lent() -> bool:
            return adapter.is_in_transaction(handle) and adapter.mark(handle) == mark

        try:
            returned = await call()
        except Exception as error:
            if is_as_lent() or adapter.is_closed(handle):
                raise
            raise self._over_early() from error
        if is_as_lent():
            return returned
        if adapter.is_closed(handle):  # whoever closed it, nothing was committed after that
            raise self._over_early() from DatabaseUnavailable("the connection was lost in a handler's transaction")
        raise self._over_early()

    def _over_early(self) -> _OverEarly:
        return _OverEarly(
            f"{self._handler.name} committed, rolled back or closed the transaction it was lent",
            hint="Leave commit and rollback to Postlude; for work outside a transaction use transactional=False.",
        )

    async def _require_commits(self, entry: Entry) -> None:
        """A factory whose block ends without a commit would have everything delivered for ever: looked at once."""
        transactions = self._parts.transactions
        if transactions.are_proven:
            return
        story = await self._parts.story(entry.event.event_id)
        if story is not None and any(row["seq"] == entry.delivery.seq for row in story.deliveries):
            raise ConfigurationError(
                "the transactions that were given to Postlude do not commit: what a handler wrote is rolled back",
                hint="Commit at the end of the context manager's block, and roll back only when it raises.",
            )
        transactions.are_proven = True

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

    async def _called_here(self, event: object, context: Context) -> object:
        sync = SyncContext(context, None)
        return self._handler.function(*((event, sync) if self._handler.takes_context else (event,)))

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
            at=(error.at if isinstance(error, ContractViolation) else None) or raised_at(error),
            message=kept if self._parts.keep_messages else None,
        )


def _is_transient(error: BaseException) -> bool:
    """Serialisation failures, deadlocks and lost connections burn no attempt, whoever wrapped them."""
    code = sqlstate_of(error)
    if code is not None and (code in SERIALISATION or code.startswith(LOST_CONNECTION)):
        return True
    if any(getattr(one, "connection_invalidated", False) is True for one in wrapped(error)):  # SQLAlchemy says so
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
