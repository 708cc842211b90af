"""What is said of a database that cannot be reached: the first time at once, then now and then."""

from __future__ import annotations

import logging

from postlude.errors import PostludeError
from postlude.ports.clock import Clock

log = logging.getLogger("postlude.outage")
EVERY = 10.0


class Outage:
    """Of one worker. All its relays and loops fail together, many times a second: one line stands for them all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = float("-inf")
        self._unsaid = 0

    def report(self, who: str, error: PostludeError) -> None:
        now = self._clock.monotonic()
        if now < self._next:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more like it)" if self._unsaid else ""
        log.warning("%s: %s%s", who, error.args[0], more)
        self._next, self._unsaid = now + EVERY, 0
