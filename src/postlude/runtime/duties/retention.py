"""Retention: what was settled long ago goes, in bounded rounds. Dead letters stay until someone decides."""

from __future__ import annotations

import logging

import msgspec

from postlude.ports.upkeep import Upkeep
from postlude.runtime.duties.duty import Duty, Round

log = logging.getLogger("postlude.duties")
BATCH = 5000


class RetentionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """0 hours means never."""

    events_hours: int
    dead_hours: int
    receipts_hours: int | None = None
    """None: as long as events."""
    inbox_hours: int = 0


class Retention(Duty):
    title = "retention"
    first_after = 5.0

    def __init__(self, upkeep: Upkeep, options: RetentionOptions, *, interval: float) -> None:
        super().__init__(upkeep, interval)
        self._options = options

    async def round(self) -> Round:
        """Rows count as rows and a retired day counts as one: nobody counts what a TRUNCATE takes."""
        hours, receipts_hours = self._options.events_hours, self._options.receipts_hours
        retired = await self._upkeep.retire_partitions(hours, receipts_hours)
        if retired:
            log.info("retired %s", ", ".join(retired))
        pruned = await self._upkeep.prune(
            events_hours=hours,
            receipts_hours=receipts_hours,
            dead_hours=self._options.dead_hours,
            inbox_hours=self._options.inbox_hours,
            limit=BATCH,
        )
        if pruned:
            log.info("pruned %d rows", pruned)
        return Round(pruned + len(retired), pruned >= BATCH)
