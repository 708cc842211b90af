"""Partitions are made ahead, so that no append ever waits for one."""

from __future__ import annotations

import logging

from postlude.ports.upkeep import Upkeep
from postlude.runtime.duties.duty import Duty, Round

log = logging.getLogger("postlude.duties")


class MakePartitions(Duty):
    title = "partitions"
    first_after = 0.5

    def __init__(self, upkeep: Upkeep, *, days: int, interval: float) -> None:
        super().__init__(upkeep, interval)
        self._days = days

    async def round(self) -> Round:
        if made := await self._upkeep.make_partitions(self._days):
            log.info("made %d partitions, the last is %s", len(made), made[-1])
        return Round(len(made))
