"""The renewing thread: keeps the worker's lease while its loop is alive, on a connection and an event loop of its own.

A busy loop does not lose its lanes; a hung one does, because the thread renews only while the loop's beat is fresh.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from uuid import UUID

from postlude.ports.clock import Clock
from postlude.ports.ownership import Lease, Ownership

log = logging.getLogger("postlude.renewal")


class Renewal:
    """`is_trusted` is asked by the loop, from memory; `is_buried` says that others took the lanes."""

    def __init__(self, ownership: Ownership, clock: Clock, *, lease: float, is_alive: Callable[[], bool]) -> None:
        self._ownership = ownership
        self._clock = clock
        self._lease = lease
        self._is_alive = is_alive
        self._worker: UUID | None = None
        self._trusted_until = 0.0
        self._buried = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_trusted(self) -> bool:
        return not self._buried and self._clock.monotonic() < self._trusted_until

    @property
    def is_buried(self) -> bool:
        return self._buried

    def start(self, worker: UUID, registered_at: float) -> None:
        """Trust counts from before the registration was sent."""
        self._worker, self._buried = worker, False
        self._trust(registered_at)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._run()), name="postlude-renewal", daemon=True
            )
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """A database that hangs may keep the thread; it is a daemon, and ends with its statement."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)
            self._thread = None

    def distrust(self) -> None:
        """Stop believing in the lease at once."""
        self._trusted_until = 0.0

    def _trust(self, sent: float) -> None:
        self._trusted_until = sent + self._lease * 2 / 3

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                async with self._ownership.lease() as lease:
                    await self._renew(lease)
            except Exception as error:  # noqa: BLE001 - whatever it is, the lease must be tried for again
                log.warning("the lease could not be renewed: %s", error.args[0] if error.args else error)
                await self._pause(min(1.0, self._lease / 10))

    async def _renew(self, lease: Lease) -> None:
        while not self._stopping.is_set():
            worker = self._worker
            if worker is not None and not self._buried and self._is_alive():
                sent = self._clock.monotonic()
                if await lease.renew(worker, self._lease):
                    self._trust(sent)
                elif worker == self._worker:
                    self._buried = True
            await self._pause(self._lease / 5)

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(RuntimeError):
            await loop.run_in_executor(None, self._stopping.wait, seconds)
