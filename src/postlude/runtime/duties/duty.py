"""What all duties share: an owner by lease, a rhythm, and an end that waits for nobody."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from uuid import UUID

from postlude.core.delivery import Fence
from postlude.errors import PostludeError
from postlude.ports.store import OwnedLane

log = logging.getLogger("postlude.duties")
PREFIX = "duty:"


class Duty(ABC):
    """A duty has one lane and no deliveries: owning the lane is having the duty."""

    kind = "duty"
    lanes_in_all = 1
    paused = False
    title = ""
    first_after = 1.0

    def __init__(self, interval: float) -> None:
        self.name = PREFIX + self.title
        self.epochs: dict[int, int] = {}
        self._interval = interval

    @property
    def lanes(self) -> set[int]:
        return set(self.epochs)

    @abstractmethod
    async def round(self) -> bool:
        """Do a bounded piece; True when there is more to do at once."""

    async def run(self) -> None:
        """For ever: when it is this worker's turn, do a round; an error waits for the next one."""
        await asyncio.sleep(self.first_after)
        while True:
            more = False
            if self.lanes:
                try:
                    more = await self.round()
                except PostludeError as error:
                    log.warning("%s: %s", self.name, error.args[0])
                except Exception:  # housekeeping that fails must not stop deliveries
                    log.exception("%s failed; it is tried again in %g s", self.name, self._interval)
            await asyncio.sleep(0 if more else self._interval if self.lanes else min(1.0, self._interval))

    def own(self, worker: UUID, lanes: Sequence[OwnedLane]) -> None:  # noqa: ARG002 - a duty writes under no fence
        self.epochs.update((lane.lane, lane.epoch) for lane in lanes)

    def disown(self, lanes: set[int]) -> None:
        for lane in lanes:
            self.epochs.pop(lane, None)

    def shed(self, count: int) -> None:  # noqa: B027 - there is one lane; it is kept until the worker ends
        """Nothing to give."""

    def shed_lanes(self) -> Fence | None:
        return None
