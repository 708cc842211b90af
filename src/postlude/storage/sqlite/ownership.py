"""Workers, leases and lanes."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.delivery import Fence
from postlude.core.statement import Row
from postlude.ports.ownership import LiveWorker, OwnedLane
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.connection import connect
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.faults import translated
from postlude.storage.sqlite.session import Session


class SqliteLease:
    """The renewing connection; it belongs to the renewing thread, which it may block."""

    def __init__(self, database: Database, connection: sqlite3.Connection) -> None:
        self._database = database
        self._connection = connection

    async def renew(self, worker: UUID, lease: float) -> bool:
        async def attempt() -> list[Row]:
            session = Session(self._connection, self._database.statements, self._database.now())
            return session.fetch("renew", worker=worker.bytes, lease=lease)

        with translated(self._database.path):
            return bool(await self._database.patiently(attempt))


class SqliteOwnership:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self, worker: UUID, name: str, destinations: Mapping[str, tuple[str, int]], lease: float
    ) -> None:
        served = [(destination, kind, lanes) for destination, (kind, lanes) in destinations.items()]
        values = {
            "worker": worker.bytes,
            "name": name,
            "version": _version(),
            "lease": lease,
            "destinations": rows.json(list(destinations)),
        }
        await self._database.write(lambda session: _register(session, rows.json(served), values))

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[SqliteLease]:
        async def attempt() -> sqlite3.Connection:
            return connect(self._database.path, sqlite3.Connection)

        with translated(self._database.path):
            connection = await self._database.patiently(attempt)
        try:
            yield SqliteLease(self._database, connection)
        finally:
            connection.close()

    async def bury_workers(self) -> int:
        return await self._database.write(_bury)

    async def live_workers(self) -> list[LiveWorker]:
        found = await self._database.read(lambda session: session.fetch("live_workers"))
        return [_live_worker(row) for row in found]

    async def owned_lanes(self, worker: UUID) -> dict[str, dict[int, int]]:
        found = await self._database.read(lambda session: session.fetch("owned_lanes", worker=worker.bytes))
        owned: dict[str, dict[int, int]] = {}
        for destination, lane, epoch in found:
            owned.setdefault(destination, {})[lane] = epoch
        return owned

    async def claim_lanes(self, worker: UUID, destination: str, count: int) -> list[OwnedLane]:
        values = {"worker": worker.bytes, "destination": destination, "count": max(count, 0)}
        found = await self._database.write(lambda session: session.fetch("claim_lanes", **values))
        return [OwnedLane(lane, epoch, cautious_to or 0) for lane, epoch, cautious_to in found]

    async def release_lanes(self, fence: Fence) -> None:
        values = rows.fence(fence, fence.epochs)
        await self._database.write(lambda session: session.fetch("release_lanes", **values))

    async def leave(self, worker: UUID) -> None:
        await self._database.write(lambda session: _leave(session, worker))

    async def paused(self) -> frozenset[str]:
        return frozenset(row[0] for row in await self._database.read(lambda session: session.fetch("paused")))


def _register(session: Session, served: str, values: dict[str, Any]) -> None:
    session.fetch("register_destinations", destinations=served)
    session.fetch("register_destinations_2", destinations=served)
    session.fetch("register_worker", **values)


def _bury(session: Session) -> int:
    freed = session.fetch("bury_workers")
    session.fetch("bury_workers_2")
    return len(freed)


def _leave(session: Session, worker: UUID) -> None:
    session.fetch("leave", worker=worker.bytes)
    session.fetch("leave_2", worker=worker.bytes)


def _live_worker(row: Row) -> LiveWorker:
    worker, name, version, started_at, stopping, destinations, lease_until = row
    return LiveWorker(
        UUID(bytes=worker),
        name,
        version,
        rows.moment(started_at),
        bool(stopping),
        msgspec.json.decode(destinations, type=tuple[str, ...]),
        rows.moment(lease_until),
    )


def _version() -> str:
    try:
        return version("postlude")
    except PackageNotFoundError:  # run from its source
        return "0"
