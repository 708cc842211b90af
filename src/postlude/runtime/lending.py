"""Transactions that are lent to code of the user's: opened, settled in, watched, and ended by nobody but us."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from postlude.core.at_once import at_once
from postlude.core.delivery import Delivery, Fence
from postlude.core.outcome import HELD, SETTLED, Outcome, Rejected
from postlude.core.statement import Script
from postlude.errors import ConfigurationError, ContractViolation, DatabaseUnavailable, NotInTransaction
from postlude.outbox.outbox import Handles, Outbox
from postlude.ports.destination import Entry
from postlude.ports.enlist import Ended
from postlude.ports.records import Story
from postlude.ports.scripts import Scripts
from postlude.ports.settling import Settling
from postlude.runtime.faults import Taken, fault_of, is_transient, outcome_of
from postlude.runtime.opening import Open
from postlude.runtime.threads import Threads
from postlude.runtime.transactions import Opening, Transactions

log = logging.getLogger("postlude.handling")
T = TypeVar("T")

CALL_MARGIN = 15.0
"""How long after its timeout a call of unknown outcome is left alone before it is made again."""
SETTLE_DELAYS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
LOST_BY_CHANCE = 3
"""A handler that returns well and leaves a closed connection behind so many times has closed it itself."""


class LendingParts(msgspec.Struct, frozen=True):
    """What everything that is called in this process shares."""

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
    open: Open
    """Events that are sealed."""
    keep_messages: bool
    transaction_limit: float | None = None
    """SQLite has one writer: how long a handler may hold it."""
    places: asyncio.Semaphore | None = None
    """How many handlers may hold a connection of our own pool: relays, ticks and appends need some too."""


class _OverEarly(ContractViolation):
    """The callee ended the transaction it was lent; the settling is committed with it, or rolled back."""


OverEarly = _OverEarly  # to the world it is a ContractViolation, and stored as one


class Lending:
    """To the callees of one destination. `name` is how they are called in sentences."""

    def __init__(self, name: str, destination: str, parts: LendingParts) -> None:
        self._name = name
        self._destination = destination
        self._parts = parts
        self._lost: Counter[int] = Counter()

    async def try_out(self, *, in_thread: bool) -> None:
        """Open a transaction of those that were given: a mistake in them is told now, not at the first delivery."""
        transactions = self._parts.transactions
        if in_thread in transactions.tried:
            return
        opening = transactions()

        async def enter() -> None:
            async with self.transaction(opening):
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

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
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
    async def transaction(self, opening: Opening) -> AsyncIterator[Any]:
        async with opening.context as handle:
            adapter = self._parts.handles.adapter(handle)
            adapter.require_transaction(handle)
            try:
                yield handle
            except Exception as error:
                if isinstance(error, OverEarly) or not adapter.is_closed(handle):
                    raise
                raise DatabaseUnavailable("the connection was lost in a handler's transaction") from error

    async def play(self, handle: Any, script: Script[T]) -> T:
        return await self._parts.handles.adapter(handle).play(handle, script)

    async def settle(self, handle: Any, delivery: Delivery, fence: Fence, idle: float) -> None:
        if not await self.play(handle, self._parts.scripts.settle_handled(fence, delivery, idle)):
            raise Taken

    async def lend(
        self,
        handle: Any,
        call: Callable[[], Awaitable[object]],
        check: Callable[[object], T],
        *,
        savepoint: bool = False,
    ) -> T:
        """The call with a transaction that is not its own to end. What `check` raises rolls back to the savepoint."""
        adapter = self._parts.handles.adapter(handle)
        mark = adapter.mark(handle)
        try:
            if savepoint or mark is None:
                async with adapter.savepoint(handle):
                    return check(await self._watched(handle, mark, call))
            return check(await self._watched(handle, mark, call))
        except Ended as error:
            raise self._over_early() from error

    async def persist(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """A transaction of its own, again and again: an effect has happened, only the bookkeeping is repeated."""
        for delay in SETTLE_DELAYS:
            try:
                return await self.bookkeeping(work)
            except Exception as error:
                if not is_transient(error):
                    raise
                await asyncio.sleep(delay)
        return await self.bookkeeping(work)

    async def bookkeeping(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """A transaction without code of the user's in it."""
        opening = self._parts.transactions()

        async def all_of_it() -> T:
            async with self.transaction(opening) as handle:
                return await work(handle)

        return await (await self._parts.threads.start(lambda: at_once(all_of_it())) if opening.blocks else all_of_it())

    async def require_commits(self, entry: Entry) -> None:
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

    async def after_the_end(self, error: OverEarly, entry: Entry, *, keep_messages: bool) -> Outcome:
        """A handler ended its transaction: was the settling committed with it?"""
        fault = fault_of(error, keep_messages=keep_messages)
        try:
            stored = msgspec.json.encode(fault).decode()
            is_dead = await self._parts.settling.condemn(self._destination, entry.delivery, stored)
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
            return outcome_of(error.__cause__, self._name, entry, keep_messages=keep_messages)
        self.forget(entry)
        return Rejected(fault)

    def forget(self, entry: Entry) -> None:
        """It has its outcome."""
        self._lost.pop(entry.delivery.seq, None)

    async def _watched(self, handle: Any, mark: object | None, call: Callable[[], Awaitable[object]]) -> object:
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

    def _over_early(self) -> OverEarly:
        return OverEarly(
            f"{self._name} committed, rolled back or closed the transaction it was lent",
            hint="Leave commit and rollback to Postlude; for work outside a transaction use transactional=False.",
        )
