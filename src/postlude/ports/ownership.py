"""Workers, their leases and their lanes. The rules of `postlude.ports.store` hold."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from postlude.core.delivery import Fence


class LiveWorker(msgspec.Struct, frozen=True):
    """A process with a lease."""

    id: UUID
    name: str
    version: str
    started_at: datetime
    stopping: bool
    destinations: tuple[str, ...]
    lease_until: datetime


class OwnedLane(msgspec.Struct, frozen=True):
    """A lane that was just claimed. Up to `cautious_to` a former owner may have died of an entry."""

    lane: int
    epoch: int
    cautious_to: int = 0


class Lease(Protocol):
    """A connection of its own, used by the renewing thread only."""

    async def renew(self, worker: UUID, lease: float) -> bool:
        """Prolong the lease by the database's clock. False: this worker is buried."""


class Ownership(Protocol):
    """Workers, their leases and their lanes."""

    async def register(
        self, worker: UUID, name: str, destinations: Mapping[str, tuple[str, int]], lease: float
    ) -> None:
        """A new worker, the destinations it serves (kind and number of lanes), and their lanes where missing."""

    def lease(self) -> AbstractAsyncContextManager[Lease]:
        """Open the renewing connection; may be called from another thread and event loop."""

    async def bury_workers(self) -> int:
        """Delete workers whose lease ended and free their lanes with a new epoch. Gives the lanes freed."""

    async def live_workers(self) -> list[LiveWorker]:
        """By start time."""

    async def owned_lanes(self, worker: UUID) -> dict[str, dict[int, int]]:
        """What the database says this worker owns: epochs by destination and lane."""

    async def claim_lanes(self, worker: UUID, destination: str, count: int) -> list[OwnedLane]:
        """Take up to that many free lanes; nothing when the worker is not alive."""

    async def release_lanes(self, fence: Fence) -> None:
        """Give lanes back."""

    async def leave(self, worker: UUID) -> None:
        """A clean end: the worker and its ownership are gone at once."""

    async def paused(self) -> frozenset[str]:
        """Destinations an operator has paused."""
