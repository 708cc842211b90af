"""Hooks of the user's, called in a thread of their own: their errors and slowness touch nothing else."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

log = logging.getLogger("postlude.watchers")
T = TypeVar("T")
MAX_WAITING = 1000


class Telling(Generic[T]):
    """`what` is how the hooks are called in the log."""

    def __init__(self, what: str, hooks: Sequence[Callable[[T], None]]) -> None:
        self._what = what
        self._hooks = hooks
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
            log.warning("the %s hooks are too slow; they were not told of %r", self._what, news)

    def close(self, timeout: float = 5.0) -> None:
        """Let the hooks finish what waits, within reason."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(timeout)
            self._thread = None

    def _call_hooks(self) -> None:
        while (news := self._waiting.get()) is not None:
            for hook in self._hooks:
                try:
                    hook(news)
                except Exception:
                    log.exception("a %s hook failed", self._what)
