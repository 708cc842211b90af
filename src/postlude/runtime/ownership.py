"""Sharing lanes: bury the dead, take a fair share, hand over the surplus. One tick at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

from postlude.core.delivery import Fence
from postlude.core.lanes import quota
from postlude.ports.ownership import LiveWorker, OwnedLane, Ownership

log = logging.getLogger("postlude.ownership")


class Holder(Protocol):
    """Something that lanes belong to: a relay or a duty."""

    name: str
    kind: str
    lanes_in_all: int
    paused: bool

    epochs: dict[int, int]
    """Every lane it knows to be its own, those it sheds included, with the epoch."""

    @property
    def lanes(self) -> set[int]:
        """The lanes it owns and keeps."""

    def own(self, worker: UUID, lanes: Sequence[OwnedLane]) -> None: ...
    def disown(self, lanes: set[int]) -> None: ...
    def shed(self, count: int) -> None: ...
    def shed_lanes(self) -> Fence | None: ...


class Buried(Exception):
    """Others took this worker for dead: it must start again under a new id."""


class Sharing:
    """The lanes of one worker. Acts on a changed number of workers only when it held for two ticks."""

    def __init__(self, ownership: Ownership, worker: UUID, holders: Iterable[Holder]) -> None:
        self._ownership = ownership
        self._worker = worker
        self._holders = list(holders)
        self._last: dict[str, int] = {}

    async def tick(self) -> None:
        """Raises `Buried`."""
        if freed := await self._ownership.bury_workers():
            log.warning("a worker ended without saying so; %d lanes are free", freed)
        workers = await self._ownership.live_workers()
        if all(worker.id != self._worker for worker in workers):
            raise Buried
        paused = await self._ownership.paused()
        owned = await self._ownership.owned_lanes(self._worker)
        for holder in self._holders:
            holder.paused = holder.name in paused
            await self._agree(holder, owned.get(holder.name, {}))
            await self._share(holder, workers)

    async def _agree(self, holder: Holder, owned: dict[int, int]) -> None:
        """What the database says counts: an answer that was lost with its connection must not cost a lane for ever."""
        holder.disown({lane for lane, epoch in holder.epochs.items() if owned.get(lane) != epoch})
        strays = {lane: epoch for lane, epoch in owned.items() if lane not in holder.epochs}
        if strays:
            await self._ownership.release_lanes(Fence(self._worker, holder.name, strays))

    async def _share(self, holder: Holder, workers: list[LiveWorker]) -> None:
        peers = [worker.id for worker in workers if holder.name in worker.destinations and not worker.stopping]
        fair = quota(holder.lanes_in_all, peers, self._worker)
        have = len(holder.lanes)
        if have < fair:
            holder.own(self._worker, await self._ownership.claim_lanes(self._worker, holder.name, fair - have))
        elif have > fair and self._last.get(holder.name) == len(peers):
            holder.shed(have - fair)
        self._last[holder.name] = len(peers)
        if (fence := holder.shed_lanes()) is not None:
            await self._ownership.release_lanes(fence)
