"""Maintenance: days are retired as partitions, ids that are not ours go in batches; and what duties did."""

from __future__ import annotations

from typing import Any

import msgspec

from postlude.ports.upkeep import DutyRun, TableUse
from postlude.storage.postgres.connection import Database
from postlude.storage.postgres.partitions import Partitions


class PostgresUpkeep:
    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._partitions = Partitions(database, schema)

    async def make_partitions(self, days: int) -> list[str]:
        return await self._partitions.make(days)

    async def retire_partitions(self, hours: int, receipts_hours: int | None = None) -> list[str]:
        return await self._partitions.retire(hours, hours if receipts_hours is None else receipts_hours)

    async def prune(
        self,
        *,
        events_hours: int,
        dead_hours: int,
        limit: int,
        receipts_hours: int | None = None,
        inbox_hours: int = 0,
    ) -> int:
        pruned = 0
        receipts_hours = events_hours if receipts_hours is None else receipts_hours
        kinds = [
            ("prune_events", events_hours),
            ("prune_receipts", receipts_hours),
            ("prune_dead", dead_hours),
            ("prune_inbox", inbox_hours),
            ("prune_sagas", events_hours),
        ]
        for name, hours in kinds:
            if hours > 0:
                found = await self._database.fetch(name, hours=hours, limit=limit, ahead=self._database.ahead)
                pruned += found[0][0]
        return pruned

    async def duties(self) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._database.fetch("duties", ahead=self._database.ahead)]

    async def record_duty(self, name: str, run: DutyRun) -> None:
        values = msgspec.structs.asdict(run)
        await self._database.fetch("record_duty", name=name, ahead=self._database.ahead, **values)

    async def disk_use(self) -> list[TableUse]:
        return [TableUse(**dict(row)) for row in await self._database.fetch("disk_use")]
