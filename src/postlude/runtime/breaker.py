"""The breaker: a destination that cannot be reached is left alone for a while, and then asked with one entry."""

from __future__ import annotations

FIRST = 0.2
LONGEST = 30.0


class Breaker:
    """Closed, open until a time, or half open. One for each destination and worker."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    @property
    def is_closed(self) -> bool:
        return self._failures == 0

    def wait(self, now: float) -> float:
        """Seconds until the next try; 0 when one may be made."""
        return max(0.0, self._until - now)

    def limit(self, batch: int) -> int:
        """After a failure one entry is enough to ask."""
        return batch if self.is_closed else 1

    def fail(self, now: float, chance: float) -> float:
        """The destination failed: open, for longer each time. Gives the seconds."""
        delay = min(FIRST * 2.0 ** min(self._failures, 20), LONGEST) * (0.75 + 0.5 * chance)
        self._failures += 1
        self._until = now + delay
        return delay

    def succeed(self) -> None:
        """The destination answered."""
        self._failures = 0
        self._until = 0.0
