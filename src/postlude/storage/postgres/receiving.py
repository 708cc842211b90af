"""Consumers of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from postlude.ports.receiving import InboxFilter
from postlude.storage.postgres.connection import Database


class PostgresReceiving:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, consumer: str) -> tuple[datetime, datetime]:
        ((since, now),) = await self._database.fetch("begin_consumer", consumer=consumer, ahead=self._database.ahead)
        return since, now

    async def open_entries(self, destinations: Sequence[str], limit: int) -> int:
        found = await self._database.fetch("open_entries", destinations=list(destinations), limit=limit)
        return min(limit, int(found[0][0]))

    async def record_lag(self, consumer: str, lag: int | None) -> None:
        await self._database.fetch("record_lag", consumer=consumer, lag=lag)

    async def consumers(self) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._database.fetch("consumers")]

    async def seen(self, which: InboxFilter, *, limit: int) -> list[dict[str, Any]]:
        found = await self._database.fetch("list_inbox", limit=limit, **msgspec.structs.asdict(which))
        return [dict(row) for row in found]
