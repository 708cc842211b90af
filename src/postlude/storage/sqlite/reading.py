"""What the relay reads."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from postlude.core.delivery import Delivery, StoredEvent
from postlude.core.floors import Track
from postlude.ports.reading import News
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database


class SqliteReading:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def last_seq(self) -> int:
        found = await self._database.read(lambda session: session.fetch("last_seq"))
        return int(found[0][0]) if found else 0

    async def appenders(self) -> frozenset[str]:
        return frozenset()

    async def news(self, after: int, limit: int) -> list[News]:
        found = await self._database.read(lambda session: session.fetch("news", after=after, limit=limit))
        return [
            News(destination, lane, priority, bool(pending), entries)
            for destination, lane, priority, pending, entries in found
        ]

    async def read_pending(self, destination: str, tracks: Sequence[Track], limit: int) -> list[Delivery]:
        wanted = rows.json([(track.lane, track.priority, track.floor) for track in tracks])
        found = await self._database.read(
            lambda session: session.fetch("read_pending", destination=destination, tracks=wanted, limit=limit)
        )
        return [rows.delivery(row) for row in found]

    async def read_due(
        self, destination: str, lanes: Sequence[int], limit: int, excluding: Sequence[int]
    ) -> list[Delivery]:
        values = {"lanes": rows.json(list(lanes)), "excluding": rows.json(list(excluding))}
        found = await self._database.read(
            lambda session: session.fetch("read_due", destination=destination, limit=limit, **values)
        )
        return [rows.delivery(row) for row in found]

    async def freed(self, destination: str, keys: Sequence[tuple[str, int]]) -> list[str]:
        wanted = rows.json(list(keys))
        found = await self._database.read(lambda session: session.fetch("freed", destination=destination, keys=wanted))
        return [row[0] for row in found]

    async def events(self, event_ids: Sequence[UUID]) -> dict[UUID, StoredEvent]:
        found = await self._database.read(lambda session: session.fetch("events", **rows.ids(event_ids)))
        return {event.event_id: event for event in map(rows.event, found)}

    async def has_due(self, destinations: Sequence[str]) -> bool:
        wanted = rows.json(list(destinations))
        found = await self._database.read(lambda session: session.fetch("has_due", destinations=wanted))
        return bool(found[0][0])
