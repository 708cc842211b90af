"""Time and chance, so that tests can hold both."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The worker's own time. What is stored is always the database's clock, moved by `ahead`."""

    @property
    def ahead(self) -> float:
        """Seconds by which the database's clock is moved; 0 outside tests."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def chance(self) -> float:
        """A random number in [0, 1)."""
