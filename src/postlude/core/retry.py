"""When a failed delivery is tried again, and when it has been tried enough."""

from __future__ import annotations

import sys
from datetime import timedelta

import msgspec

LONGEST = 1e9
"""Thirty years; more is a mistake."""


class Retry(msgspec.Struct, frozen=True):
    """Exponential backoff with a cap; jitter 0 makes it deterministic."""

    max_attempts: int = 10
    base_delay: float = 2.0
    multiplier: float = 2.0
    max_delay: float = 3600.0
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {self.max_attempts}")
        if not (0 <= self.base_delay <= LONGEST and 0 <= self.max_delay <= LONGEST):
            raise ValueError(f"delays cannot be negative, nor longer than {LONGEST:g} seconds")
        if not self.multiplier >= 1:
            raise ValueError(f"multiplier must be at least 1, not {self.multiplier}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must lie between 0 and 1, not {self.jitter}")

    def delay(self, attempts: int, *, chance: float = 0.5) -> timedelta:
        """How long to wait after that many attempts.

        `chance` in [0, 1) spreads the delay over ± jitter; 0.5 is the middle. The pure core has no dice, so the
        caller throws them.
        """
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {attempts}")
        seconds = min(self.base_delay * _power(self.multiplier, attempts - 1), self.max_delay)
        return timedelta(seconds=seconds * (1 + self.jitter * (2 * chance - 1)))

    def is_exhausted(self, attempts: int, *, max_attempts: int | None = None) -> bool:
        """Have all attempts been used? An entry may carry its own maximum."""
        return attempts >= (max_attempts or self.max_attempts)


def _power(multiplier: float, exponent: int) -> float:
    """Bounded where floats end, so that any number of attempts has a delay."""
    try:
        return min(multiplier**exponent, sys.float_info.max)
    except OverflowError:
        return sys.float_info.max
