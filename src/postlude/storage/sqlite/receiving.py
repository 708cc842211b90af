"""Consumers of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from postlude.ports.receiving import InboxFilter
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database


class SqliteReceiving:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, consumer: str) -> tuple[datetime, datetime]:
        ((since, now),) = await self._database.write(lambda session: session.fetch("begin_consumer", consumer=consumer))
        return rows.moment(since), rows.moment(now)

    async def open_entries(self, destinations: Sequence[str], limit: int) -> int:
        wanted = rows.json(list(destinations))
        found = await self._database.read(
            lambda session: session.fetch("open_entries", destinations=wanted, limit=limit)
        )
        return int(found[0][0])

    async def record_lag(self, consumer: str, lag: int | None) -> None:
        await self._database.write(lambda session: session.fetch("record_lag", consumer=consumer, lag=lag))

    async def consumers(self) -> list[dict[str, Any]]:
        return await self._mappings("consumers")

    async def seen(self, which: InboxFilter, *, limit: int) -> list[dict[str, Any]]:
        values = {"consumer": which.consumer, "topic": which.topic, "limit": limit}
        return await self._mappings(
            "list_inbox", **values, since=rows.seconds(which.since), until=rows.seconds(which.until)
        )

    async def _mappings(self, name: str, **values: Any) -> list[dict[str, Any]]:
        found = await self._database.read(lambda session: session.mappings(name, **values))
        return [rows.mapping(row) for row in found]
