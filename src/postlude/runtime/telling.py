"""Hooks of the user's, called in a thread of their own: their errors and slowness touch nothing else."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from uuid import UUID

from postlude.runtime.faults import fault_of

log = logging.getLogger("postlude.watchers")
T = TypeVar("T")
MAX_WAITING = 1000


class Telling(Generic[T]):
    """`what` is how the hooks are called in the log, and `id_of` gives all that the log may say of news."""

    def __init__(self, what: str, hooks: Sequence[Callable[[T], None]], id_of: Callable[[T], UUID]) -> None:
        self._what = what
        self._hooks = hooks
        self._id_of = id_of
        self._waiting: queue.Queue[T | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    def tell(self, news: T) -> None:
        """Does not wait; what is too much is in the log only."""
        if not self._hooks:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._call_hooks, name="postlude-hooks", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(news)
        except queue.Full:
            log.warning("the %s hooks are too slow; they were not told of %s", self._what, self._id_of(news))

    def close(self, timeout: float = 5.0) -> None:
        """Let the hooks finish what waits, within reason. A thread that hangs is a daemon, and ends with the process."""
        if self._thread is None:
            return
        end = time.monotonic() + timeout
        try:
            self._waiting.put(None, timeout=timeout)
        except queue.Full:
            log.warning("the %s hooks do not come back; they are not waited for", self._what)
        else:
            self._thread.join(max(0.0, end - time.monotonic()))
        self._thread = None

    def _call_hooks(self) -> None:
        while (news := self._waiting.get()) is not None:
            for hook in self._hooks:
                try:
                    hook(news)
                except BaseException as error:  # noqa: BLE001 - sys.exit() in a hook would end all of them
                    # Without its message: whom the news is about may stand in it.
                    place = fault_of(error, keep_messages=False).place
                    log.error("a %s hook failed on %s: %s", self._what, self._id_of(news), place)  # noqa: TRY400
