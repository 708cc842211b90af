"""What time it is in the database, without asking it for every decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from postlude.ports.clock import Clock


class Times:
    """This machine's clock, corrected by what was learned of the database's."""

    def __init__(self, clock: Callable[[], Clock]) -> None:
        self._clock = clock
        self._off = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._off + timedelta(seconds=self._clock().ahead)

    async def learn(self, ask: Callable[[], Awaitable[datetime]]) -> None:
        """`ask` gives the database's time; half of the time it takes has passed by then."""
        before = datetime.now(UTC)
        said = await ask()
        middle = before + (datetime.now(UTC) - before) / 2
        self._off = said - timedelta(seconds=self._clock().ahead) - middle
