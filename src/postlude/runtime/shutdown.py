"""Signals: the first asks for an orderly end, the second does not ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator

log = logging.getLogger("postlude.worker")
SIGNALS = (signal.SIGTERM, signal.SIGINT)
AT_ONCE = 130


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on the first SIGTERM or SIGINT; end the process on the second."""
    loop = asyncio.get_running_loop()

    def received() -> None:
        if stop.is_set():
            log.warning("ended at once; lanes are free when the lease ends")
            os._exit(AT_ONCE)
        log.info("stopping: no new work, lanes are given back")
        stop.set()

    installed = []
    for number in SIGNALS:
        # Outside the main thread there are no signals to handle.
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, received)
            installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
