"""Workers, leases and lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any
from uuid import UUID

from postlude.core.delivery import Fence
from postlude.ports.ownership import LiveWorker, OwnedLane
from postlude.storage.postgres.connection import Database


class PostgresLease:
    """The renewing connection; it belongs to the renewing thread's own event loop."""

    def __init__(self, database: Database, connection: Any) -> None:
        self._database = database
        self._connection = connection

    async def renew(self, worker: UUID, lease: float) -> bool:
        database = self._database
        with database.translated():
            async with asyncio.timeout(lease):
                found = await database.fetch_on(
                    self._connection, "renew", worker=worker, lease=lease, ahead=database.ahead
                )
        return bool(found)


class PostgresOwnership:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self, worker: UUID, name: str, destinations: Mapping[str, tuple[str, int]], lease: float
    ) -> None:
        await self._database.fetch(
            "register_destinations",
            names=list(destinations),
            kinds=[kind for kind, _ in destinations.values()],
            lanes=[lanes for _, lanes in destinations.values()],
        )
        await self._database.fetch(
            "register_worker",
            worker=worker,
            name=name,
            version=version("postlude"),
            lease=lease,
            destinations=list(destinations),
            ahead=self._database.ahead,
        )

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[PostgresLease]:
        connection = await self._database.connect(timeout=5)
        try:
            yield PostgresLease(self._database, connection)
        finally:
            self._database.driver.terminate(connection)

    async def bury_workers(self) -> int:
        return len(await self._database.fetch("bury_workers", ahead=self._database.ahead))

    async def live_workers(self) -> list[LiveWorker]:
        found = await self._database.fetch("live_workers", ahead=self._database.ahead)
        return [LiveWorker(**{**row, "destinations": tuple(row["destinations"])}) for row in found]

    async def owned_lanes(self, worker: UUID) -> dict[str, dict[int, int]]:
        owned: dict[str, dict[int, int]] = {}
        for destination, lane, epoch in await self._database.fetch("owned_lanes", worker=worker):
            owned.setdefault(destination, {})[lane] = epoch
        return owned

    async def claim_lanes(self, worker: UUID, destination: str, count: int) -> list[OwnedLane]:
        found = await self._database.fetch(
            "claim_lanes", worker=worker, destination=destination, count=count, ahead=self._database.ahead
        )
        return [OwnedLane(lane, epoch, cautious_to or 0) for lane, epoch, cautious_to in found]

    async def release_lanes(self, fence: Fence) -> None:
        await self._database.fetch(
            "release_lanes",
            worker=fence.worker,
            destination=fence.destination,
            lanes=list(fence.epochs),
            epochs=list(fence.epochs.values()),
        )

    async def leave(self, worker: UUID) -> None:
        await self._database.fetch("leave", worker=worker)

    async def paused(self) -> frozenset[str]:
        return frozenset(row[0] for row in await self._database.fetch("paused"))
