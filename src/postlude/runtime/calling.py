"""Calling code of the user's within its time: on the event loop, in a thread, or in the thread a handle belongs to."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from postlude.core.at_once import at_once
from postlude.errors import HandlerTimeout
from postlude.runtime.context import Context, SyncContext
from postlude.runtime.lending import LendingParts
from postlude.runtime.suspension import Suspension

log = logging.getLogger("postlude.handling")


class Callee(Protocol):
    """A function with what is known of it."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def takes_context(self) -> bool: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def timeout(self) -> float: ...


class Calling:
    """One callee."""

    def __init__(self, callee: Callee, parts: LendingParts) -> None:
        self._callee = callee
        self._parts = parts

    @property
    def limit(self) -> float:
        """How long it may take in a transaction."""
        return min(self._callee.timeout, self._parts.transaction_limit or self._callee.timeout)

    async def run(self, argument: object, context: Context, limit: float) -> object:
        callee = self._callee
        if not callee.is_async:
            sync = SyncContext(context, asyncio.get_running_loop())
            call = partial(callee.function, *((argument, sync) if callee.takes_context else (argument,)))
            started = await self._parts.threads.start(call)
        else:
            started = callee.function(*((argument, context) if callee.takes_context else (argument,)))
            if context.tx is not None and self._parts.transaction_limit is not None:
                started = Suspension(started, self._warn_of_waiting)
        try:
            async with asyncio.timeout(limit):
                return await started
        except TimeoutError as error:
            if not callee.is_async and context.tx is not None:
                self._parts.abandon(context.tx)
            raise self._timeout(limit) from error

    async def run_here(self, argument: object, context: Context) -> object:
        """In the thread that this is."""
        sync = SyncContext(context, None)
        return self._callee.function(*((argument, sync) if self._callee.takes_context else (argument,)))

    async def in_one_thread(
        self, all_of_it: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], limit: float
    ) -> None:
        """Some handles belong to a thread (Django's, for one): begin, lock, callee and commit all happen there.
        `all_of_it` is given what it calls before it commits."""
        is_late = threading.Event()

        def require_in_time() -> None:
            if is_late.is_set():  # the verdict is given already: roll back
                raise self._timeout(limit)

        started = await self._parts.threads.start(lambda: at_once(all_of_it(require_in_time)))
        try:
            async with asyncio.timeout(limit):
                await started
        except TimeoutError as error:
            is_late.set()
            raise self._timeout(limit) from error

    def _warn_of_waiting(self) -> None:
        log.warning(
            "%s waits inside its transaction and holds SQLite's only writer meanwhile; consider transactional=False",
            self._callee.name,
        )

    def _timeout(self, limit: float) -> HandlerTimeout:
        if limit < self._callee.timeout:
            return HandlerTimeout(
                f"{self._callee.name} held the only writer of SQLite for more than {limit:g} s",
                hint="Declare it with transactional=False, or make it shorter.",
            )
        return HandlerTimeout(f"{self._callee.name} took more than {limit:g} s")
