"""A clock that a test moves, so that nothing has to sleep."""

from __future__ import annotations

import time


class ManualClock:
    """The database's clock is `ahead` by what was advanced; waiting still takes real time, and chance is even."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def advance(self, seconds: float) -> None:
        self.ahead += seconds

    def monotonic(self) -> float:
        return time.monotonic()

    def chance(self) -> float:
        return 0.5
