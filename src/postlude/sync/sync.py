"""The same names for code without an event loop: scripts, Flask, Django, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from postlude.outbox.outbox import Handles
from postlude.sync.appending import SyncInbox, SyncOutbox
from postlude.sync.erasure import SyncErasure
from postlude.sync.own_loop import OwnLoop
from postlude.sync.sagas import SyncSagas


class SyncSides(msgspec.Struct, frozen=True):
    """What is there without an event loop."""

    outbox: SyncOutbox
    inbox: SyncInbox
    sagas: SyncSagas
    erasure: SyncErasure


class Sync:
    """Of one database."""

    def __init__(
        self,
        sides: SyncSides,
        handles: Handles,
        loop: OwnLoop,
        *,
        open_own: Callable[[], AbstractContextManager[Any]],
        appended: Callable[[], None],
    ) -> None:
        self.outbox = sides.outbox
        self.inbox = sides.inbox
        self.sagas = sides.sagas
        self.erasure = sides.erasure
        self._appended = appended
        self._handles = handles
        self._loop = loop
        self._open_own = open_own
        self._looked = False

    def start(self) -> None:
        """Check the schema, and make it in an SQLite file that has none; `transaction()` does so by itself."""
        if not self._looked and not self._loop.life.is_started:
            self._loop.finish(self._loop.life.start)
        self._looked = True

    @contextmanager
    def transaction(self, handle: Any = None) -> Iterator[Any]:
        """Open a transaction of our own, or adopt the caller's handle as it is."""
        if handle is not None:
            self._handles.adapter(handle).require_transaction(handle)
            yield handle
            return
        self.start()
        with self._open_own() as opened:
            yield opened
        self._appended()

    def run_once(self, limit: int | None = None) -> int:
        """One pass over what is due; gives the deliveries settled."""
        return self._loop.finish(lambda: self._loop.life.run_once(limit))

    def drain(self, timeout: float = 30) -> int:
        """Until nothing is due, or the time is over; gives the deliveries settled."""
        return self._loop.finish(lambda: self._loop.life.drain(timeout))
