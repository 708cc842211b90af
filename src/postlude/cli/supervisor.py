"""Several workers as child processes: signals are passed on, crashed ones come back with backoff."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import random
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from types import FrameType

log = logging.getLogger("postlude.cli")

FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0
HEALTHY = 60.0
"""A child that lived that long begins its backoff anew."""
USAGE, INTERRUPTED = 2, 130
SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


class Supervisor:
    """Keeps `count` children of one command until it is told to stop or all of them ended by themselves."""

    def __init__(self, command: Sequence[str], count: int, *, deadline: float) -> None:
        self._command = command
        self._count = count
        self._deadline = deadline
        self._children: set[Process] = set()
        self._stopping = asyncio.Event()
        self._code = 0
        self.restarts = 0

    async def run(self) -> int:
        """Gives the exit code: 0 when all ended as they should."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled)
        log.info("%d workers start", self._count)
        try:
            await asyncio.gather(*(self._keep(place) for place in range(1, self._count + 1)))
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        return self._code

    async def _keep(self, place: int) -> None:
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._live()
            if self._is_over(place, code):
                return
            if time.monotonic() - began > HEALTHY:
                delay = FIRST_DELAY
            pause = delay * random.uniform(0.75, 1.25)  # noqa: S311 - no secret in a delay
            log.warning("worker %d %s; another one starts in %.1f s", place, _ending(code), pause)
            delay = min(delay * 2, LONGEST_DELAY)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return
            self.restarts += 1

    async def _live(self) -> int:
        """One child from start to end. Its own process group: a terminal's Ctrl-C must reach it once, through us."""
        child = await asyncio.create_subprocess_exec(*self._command, stdin=DEVNULL, process_group=0)
        self._children.add(child)
        if self._stopping.is_set():  # the signal came while it was being started
            _send(child, signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            self._children.discard(child)

    def _is_over(self, place: int, code: int) -> bool:
        if code == USAGE:
            log.error("worker %d refuses to start; all workers end", place)
            self._code = USAGE
            self._stop()
            return True
        if self._stopping.is_set():
            # A child that had no time to listen to the signal ends by it, which is as good.
            if code not in (0, -signal.SIGTERM):
                log.warning("worker %d %s", place, _ending(code))
                self._code = self._code or 1
            return True
        if code == 0:
            log.info("worker %d ended by itself", place)
        return code == 0

    def _signalled(self) -> None:
        if self._stopping.is_set():
            log.warning("ended at once; lanes are free when the lease ends")
            self._code = INTERRUPTED
            self._kill()
        else:
            log.info("stopping %d workers", len(self._children))
            self._stop()

    def _stop(self) -> None:
        """SIGTERM, whichever came: a child that is only just starting ends by it without a traceback."""
        self._stopping.set()
        for child in self._children:
            _send(child, signal.SIGTERM)
        asyncio.get_running_loop().call_later(self._deadline, self._kill)

    def _kill(self) -> None:
        for child in self._children:
            _send(child, signal.SIGKILL)


def die_with(parent: int) -> None:
    """In a child: end in good order when the parent is gone, even if it was killed. Linux only.

    The kernel tells it once for every thread the parent had, and a second SIGTERM would mean "at once": so it is told
    by another signal, and the first of those becomes the one SIGTERM.
    """
    if sys.platform == "linux":
        signal.signal(signal.SIGHUP, _orphaned)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)


def _orphaned(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)


def _send(child: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
