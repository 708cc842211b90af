"""A psycopg connection that never waits for ever: for an answer, or for a cancelled statement to end."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any, Self

import psycopg
from psycopg.pq import Conninfo

from postlude.storage.postgres.driver import RELEASE


def known_parameters() -> frozenset[str]:
    """What this libpq understands in a URL."""
    return frozenset(option.keyword.decode() for option in Conninfo.get_defaults())


class Attempts:
    """What became of the last attempt to connect."""

    refusal: Exception | None = None


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """Everything that waits for the server passes `wait`; everything that is cancelled there calls `cancel_safe`."""

    patience: float | None = None
    """Seconds for one answer."""
    _is_overdue = False
    _is_interrupted = False
    _cutting: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(  # type: ignore[override]  # the pool gives fewer arguments than people may
        cls,
        conninfo: str = "",
        *,
        attempts: Attempts | None = None,
        patience: float | None = None,
        **parameters: Any,
    ) -> Self:
        try:
            connection = await super().connect(conninfo, autocommit=True, **parameters)
        except Exception as error:
            if attempts is not None:
                attempts.refusal = error
            raise
        if attempts is not None:
            attempts.refusal = None
        connection.patience = patience
        return connection

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        self._is_overdue = self._is_interrupted = False
        loop = asyncio.get_running_loop()
        timer = None if self.patience is None else loop.call_later(self.patience, self._grow_impatient, loop)
        try:
            answer = await super().wait(gen, *args, **options)
        except psycopg.OperationalError as error:
            task = asyncio.current_task()
            if self._is_interrupted and task is not None and task.cancelling():
                raise asyncio.CancelledError from error  # the error is only how the session ended
            if not self._is_overdue:
                raise
        finally:
            for due in (timer, self._cutting):
                if due is not None:
                    due.cancel()
            self._cutting = None
        if self._is_overdue:
            self.pgconn.finish()  # a cancellation that is still under way would meet the next statement
            raise psycopg.OperationalError(f"no answer within {self.patience:g} seconds")
        return answer

    async def cancel_safe(self, *, timeout: float = RELEASE) -> None:
        """Ask the server to cancel. One that does not even answer loses the session."""
        self._is_interrupted = not self._is_overdue
        if self._cutting is None:
            self._cutting = asyncio.get_running_loop().call_later(RELEASE, self.cut)
        with suppress(psycopg.Error, OSError):
            async with asyncio.timeout(min(timeout, RELEASE)):
                await super().cancel_safe(timeout=RELEASE)

    def cut(self) -> None:
        """End the session under whoever waits for it, who is told so at once."""
        if not self.closed:
            with suppress(OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def is_alive(self) -> bool:
        """Has the server not hung up meanwhile? Asked without a round trip."""
        try:
            self.pgconn.consume_input()
        except psycopg.Error:
            return False
        return not self.closed

    def _grow_impatient(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_overdue = True
        self._ending = loop.create_task(self.cancel_safe())
