"""Records of the audit are linked into the chain within a second of their commit, then copied to the sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from postlude.audit.shipping import Shipping
from postlude.errors import AuditBroken, PostludeError, SinkUnavailable
from postlude.ports.audit import AuditSink, AuditTrail, Place
from postlude.ports.upkeep import DutyRun, Upkeep
from postlude.runtime.duties.duty import Duty, Round

log = logging.getLogger("postlude.duties")
INTERVAL = 1.0
BATCH = 1000
REACH = 60.0
"""Seconds before the last linked record within which every turn looks: most transactions are shorter."""
STRETCH = 500
"""Records of all history that a turn looks at besides, so that what commits later than that is found too."""
REST = 60
"""Turns between two looks at all history."""
TOLD_EVERY = 60
"""Turns without anything new until the record of the duty is written again."""


class Chain(Duty):
    title = "chain"
    first_after = 1.0

    def __init__(
        self,
        upkeep: Upkeep,
        trail: AuditTrail,
        sinks: Callable[[], Mapping[str, AuditSink]],
        *,
        interval: float = INTERVAL,
    ) -> None:
        super().__init__(upkeep, interval)
        self._trail = trail
        self._sinks = sinks
        self._shipping = Shipping(trail)
        self._place: Place | None = None
        self._resting = 0
        self._failing: tuple[str, str] | None = None
        self._untold = 0

    async def round(self) -> Round:
        """Whatever is wrong with one, the others get theirs; what it lacks waits in the database."""
        linked, shipped = 0, 0
        failures: list[AuditBroken | SinkUnavailable] = []
        try:
            linked = await self._link()
        except AuditBroken as error:
            failures.append(error)
        for name, sink in self._sinks().items():
            try:
                shipped = max(shipped, await self._shipping.ship(name, sink, BATCH))
            except (AuditBroken, SinkUnavailable) as error:
                failures.append(error)
        if failures:
            raise type(failures[0])("; ".join(str(error.args[0]) for error in failures))
        return Round(linked, linked >= BATCH or shipped >= BATCH)

    async def _link(self) -> int:
        ids = await self._trail.recent(reach=REACH, limit=BATCH)
        if len(ids) < BATCH:
            ids += [late for late in await self._late() if late not in ids]
        return len(await self._trail.link(ids)) if ids else 0

    async def _late(self) -> list[UUID]:
        """The next stretch of all history. After the last there is a rest."""
        if self._resting:
            self._resting -= 1
            return []
        found = await self._trail.look(self._place, STRETCH)
        self._place = found.following
        self._resting = REST if found.following is None else 0
        return found.unlinked

    async def record(self, run: DutyRun, next_in: float | None = None) -> None:
        """A turn a second that finds nothing need not be written a time a second."""
        if run.error is None and self._failing is not None:
            log.info("%s goes on", self.name)
            self._failing, self._untold = None, 0
        elif next_in is not None and not run.rows and self._untold:
            self._untold -= 1
            return
        self._untold = TOLD_EVERY
        await super().record(run, next_in)

    def _told(self, error: Exception) -> str:
        """Once an outage, not once a second."""
        key = str(error.args[0]) if isinstance(error, PostludeError) else type(error).__name__
        if self._failing is None or self._failing[0] != key:
            self._failing, self._untold = (key, super()._told(error)), 0
        return self._failing[1]
