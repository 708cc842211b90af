"""Retention. There are no partitions here: what is over its time goes in bounded batches."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

import msgspec

from postlude.ports.upkeep import DutyRun, TableUse
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session

_HOUR = 3600.0


class SqliteUpkeep:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_partitions(self, days: int) -> list[str]:  # noqa: ARG002 - none are needed
        return []

    async def retire_partitions(self, hours: int, receipts_hours: int | None = None) -> list[str]:  # noqa: ARG002 - there are none
        return []

    async def prune(
        self,
        *,
        events_hours: int,
        dead_hours: int,
        limit: int,
        receipts_hours: int | None = None,
        inbox_hours: int = 0,
    ) -> int:
        """Each kind in a transaction of its own, so that nobody waits for all of them. 0 hours keeps for ever."""
        pruned = 0
        receipts_hours = events_hours if receipts_hours is None else receipts_hours
        if events_hours > 0:
            pruned += await self._database.write(partial(_prune_events, hours=events_hours, limit=limit))
        for name, hours in (("prune_receipts", receipts_hours), ("prune_inbox", inbox_hours)):
            if hours > 0:
                pruned += await self._database.write(partial(_prune, name=name, hours=hours, limit=limit))
        if events_hours > 0:
            pruned += await self._database.write(partial(_prune_sagas, hours=events_hours, limit=limit))
        if dead_hours > 0:
            pruned += await self._database.write(partial(_prune_dead, hours=dead_hours, limit=limit))
        return pruned

    async def duties(self) -> list[dict[str, Any]]:
        found = await self._database.read(lambda session: session.mappings("duties"))
        return [rows.mapping(row) for row in found]

    async def record_duty(self, name: str, run: DutyRun) -> None:
        values = msgspec.structs.asdict(run)
        await self._database.write(lambda session: session.fetch("record_duty", name=name, **values))

    async def disk_use(self) -> list[TableUse]:
        return await self._database.read(_disk_use)


def _disk_use(session: Session) -> list[TableUse]:
    """Sizes only where SQLite was built to tell them; rows are counted, up to a million."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'postlude!_%' ESCAPE '!' ORDER BY name"
    names = [row[0] for row in session.connection.execute(tables)]
    try:
        sizes: dict[str, int] = dict(session.fetch("disk_use"))
    except sqlite3.OperationalError:
        sizes = {}
    count = "SELECT count(*) FROM (SELECT 1 FROM {} LIMIT 1000000)"
    found = [
        TableUse(one, sizes.get(one), session.connection.execute(count.format(one)).fetchone()[0]) for one in names
    ]
    return sorted(found, key=lambda one: -(one.bytes or 0))


def _prune(session: Session, *, name: str, hours: int, limit: int) -> int:
    return len(session.fetch(name, before=session.now - hours * _HOUR, limit=limit))


def _prune_events(session: Session, *, hours: int, limit: int) -> int:
    session.fetch("prune_events", before=session.now - hours * _HOUR, limit=limit)
    return _prune(session, name="prune_events_2", hours=hours, limit=limit)


def _prune_sagas(session: Session, *, hours: int, limit: int) -> int:
    values: dict[str, Any] = {"before": session.now - hours * _HOUR, "limit": limit}
    session.fetch("prune_sagas", **values)
    session.fetch("prune_sagas_2", **values)
    return len(session.fetch("prune_sagas_3", **values))


def _prune_dead(session: Session, *, hours: int, limit: int) -> int:
    found = session.fetch("prune_dead", before=session.now - hours * _HOUR, limit=limit)
    seqs = rows.json([row[0] for row in found])
    session.fetch("prune_dead_2", seqs=seqs)
    session.fetch("prune_dead_3", seqs=seqs)
    return len(found)
