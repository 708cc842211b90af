"""One SQLite file in this process: a store thread, a gate for writers, and a pause after each write."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from postlude.core.statement import Statement
from postlude.errors import DatabaseBusy, DatabaseUnavailable
from postlude.ports.clock import Clock
from postlude.storage.sqlite.connection import Lent, connect
from postlude.storage.sqlite.faults import is_busy, is_lost, translated
from postlude.storage.sqlite.session import Session

T = TypeVar("T")

# SQLite does not queue its writers: without a pause, one that writes back to back starves the other processes.
SHORT = 0.001
MIN_PAUSE = 0.002
PAUSE_SHARE = 0.1
FIRST_RETRY = 0.001
MAX_RETRY = 0.025


class Database:
    """All work runs in one thread, in the order it was given. Writers pass the gate first, one at a time, so that
    they wait in the event loop and the thread stays free to read."""

    def __init__(self, path: str, statements: Mapping[str, Statement], *, clock: Clock, busy_timeout: float) -> None:
        self.path = path
        self.statements = statements
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._lent: Lent | None = None
        self._lent_at = 0.0
        self._rest_until = 0.0
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._borrower: asyncio.Task[Any] | None = None

    def now(self) -> float:
        """The database's clock is this machine's, moved by `ahead`."""
        return time.time() + self._clock.ahead

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)

    async def read(self, work: Callable[[Session], T]) -> T:
        """Run work that changes nothing."""
        with translated(self.path):
            return await self.patiently(partial(self._in_thread, partial(self._read, work)))

    async def write(self, work: Callable[[Session], T]) -> T:
        """Run work in a transaction of its own."""
        async with self._gate():
            with translated(self.path):
                return await self.patiently(partial(self._in_turn, partial(self._write, work)))

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[sqlite3.Connection]:
        """A transaction for somebody else, on a connection of its own. After any error that connection is taken away,
        so that whoever still holds it can do no harm."""
        async with self._gate():
            self._borrower = asyncio.current_task()
            try:
                with translated(self.path):
                    connection = await self.patiently(partial(self._in_turn, self._begin_lent))
                yield connection
                with translated(self.path):
                    await self._in_thread(partial(self._commit_lent, connection))
            except BaseException:
                await self._in_thread(self._revoke_lent)
                raise
            finally:
                self._borrower = None

    def abandon(self, connection: sqlite3.Connection) -> None:
        """Take a lent connection away from a handler that hangs."""
        if isinstance(connection, Lent):
            connection.revoke()

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until nobody else is writing, or for `busy_timeout` seconds."""
        give_up = self._clock.monotonic() + self._busy_timeout
        delay = FIRST_RETRY
        while True:
            try:
                return await attempt()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or self._clock.monotonic() >= give_up:
                    raise
            await asyncio.sleep(delay * (0.5 + self._clock.chance()))
            delay = min(delay * 2, MAX_RETRY)

    def _gate(self) -> asyncio.Lock:
        """First come, first served. Made anew for each event loop, for a lock belongs to one."""
        if self._borrower is not None and self._borrower is asyncio.current_task():
            raise DatabaseBusy(
                f"this task has a transaction open on {self.path} and would wait for itself",
                hint="SQLite has one writer at a time: end the transaction first.",
            )
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    async def _in_turn(self, act: Callable[[], T]) -> T:
        """Leave the file to others for a moment, then act."""
        rest = self._rest_until - self._clock.monotonic()
        if rest > 0:
            await asyncio.sleep(rest)
        return await self._in_thread(act)

    async def _in_thread(self, act: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="postlude-sqlite")
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    # What follows runs in the store thread.

    def _read(self, work: Callable[[Session], T]) -> T:
        try:
            return work(Session(self._connected(), self.statements, self.now()))
        except sqlite3.Error as error:
            self._drop_if_lost(error)
            raise

    def _write(self, work: Callable[[Session], T]) -> T:
        try:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._drop_if_lost(error)
            raise
        began = self._clock.monotonic()
        try:
            result = work(Session(connection, self.statements, self.now()))
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                connection.rollback()
            self._drop_if_lost(error)
            raise
        finally:
            self._rest(began)
        return result

    def _begin_lent(self) -> Lent:
        lent, self._lent = self._lent or connect(self.path, Lent), None
        lent.begin()  # when it fails, the next try has a new one: a cursor left open would hold it in the past
        self._lent = lent
        self._lent_at = self._clock.monotonic()
        return lent

    def _commit_lent(self, connection: Lent) -> None:
        if connection.is_revoked:
            raise DatabaseUnavailable(
                f"the transaction on {self.path} was taken away and rolled back", hint="Keep transactions short."
            )
        connection.commit()
        self._rest(self._lent_at)

    def _revoke_lent(self) -> None:
        lent, self._lent = self._lent, None
        if lent is not None:
            lent.revoke()
            self._rest(self._lent_at)

    def _rest(self, began: float) -> None:
        now = self._clock.monotonic()
        held = now - began
        if held > SHORT:
            self._rest_until = now + max(MIN_PAUSE, PAUSE_SHARE * held)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self.path, sqlite3.Connection)
        return self._connection

    def _drop_if_lost(self, error: BaseException) -> None:
        if self._connection is not None and isinstance(error, sqlite3.Error) and is_lost(error):
            self._connection.close()
            self._connection = None

    def _disconnect(self) -> None:
        self._revoke_lent()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
