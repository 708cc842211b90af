"""Retention. There are no partitions here: what is over its time goes in bounded batches."""

from __future__ import annotations

from functools import partial

from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session

_HOUR = 3600.0


class SqliteUpkeep:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_partitions(self, days: int) -> list[str]:  # noqa: ARG002 - none are needed
        return []

    async def retire_partitions(self, hours: int) -> list[str]:  # noqa: ARG002 - there are none
        return []

    async def prune(self, *, events_hours: int, dead_hours: int, limit: int) -> int:
        """Each kind in a transaction of its own, so that nobody waits for all of them. 0 hours keeps for ever."""
        pruned = 0
        if events_hours > 0:
            for name in ("prune_events", "prune_receipts"):
                pruned += await self._database.write(partial(_prune, name=name, hours=events_hours, limit=limit))
        if dead_hours > 0:
            pruned += await self._database.write(partial(_prune_dead, hours=dead_hours, limit=limit))
        return pruned


def _prune(session: Session, *, name: str, hours: int, limit: int) -> int:
    return len(session.fetch(name, before=session.now - hours * _HOUR, limit=limit))


def _prune_dead(session: Session, *, hours: int, limit: int) -> int:
    found = session.fetch("prune_dead", before=session.now - hours * _HOUR, limit=limit)
    seqs = rows.json([row[0] for row in found])
    session.fetch("prune_dead_2", seqs=seqs)
    session.fetch("prune_dead_3", seqs=seqs)
    return len(found)
