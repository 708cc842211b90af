"""What the relay reads."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from uuid import UUID

from postlude.core.delivery import Delivery, StoredEvent
from postlude.core.floors import Track
from postlude.ports.reading import News
from postlude.storage.postgres import rows
from postlude.storage.postgres.connection import Database

_seq = attrgetter("seq")


class PostgresReading:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def last_seq(self) -> int:
        return int((await self._database.fetch("last_seq"))[0][0])

    async def appenders(self) -> frozenset[str]:
        return frozenset(row[0] for row in await self._database.fetch("appenders"))

    async def news(self, after: int, limit: int) -> list[News]:
        return [News(*row) for row in await self._database.fetch("news", after=after, limit=limit)]

    async def read_pending(self, destination: str, tracks: Sequence[Track], limit: int) -> list[Delivery]:
        found = await self._database.fetch(
            "read_pending",
            destination=destination,
            lanes=[track.lane for track in tracks],
            priorities=[track.priority for track in tracks],
            floors=[track.floor for track in tracks],
            limit=limit,
        )
        return sorted(map(rows.delivery, found), key=_seq)

    async def read_due(
        self, destination: str, lanes: Sequence[int], limit: int, excluding: Sequence[int]
    ) -> list[Delivery]:
        found = await self._database.fetch(
            "read_due",
            destination=destination,
            lanes=list(lanes),
            limit=limit,
            excluding=list(excluding),
            ahead=self._database.ahead,
        )
        return sorted(map(rows.delivery, found), key=_seq)

    async def freed(self, destination: str, keys: Sequence[tuple[str, int]]) -> list[str]:
        found = await self._database.fetch(
            "freed", destination=destination, keys=[key for key, _ in keys], seqs=[seq for _, seq in keys]
        )
        return [row[0] for row in found]

    async def events(self, event_ids: Sequence[UUID]) -> dict[UUID, StoredEvent]:
        if not event_ids:
            return {}
        found = await self._database.fetch("events", event_ids=list(event_ids), low=min(event_ids), high=max(event_ids))
        return {row[0]: rows.event(row) for row in found}

    async def has_due(self, destinations: Sequence[str]) -> bool:
        found = await self._database.fetch("has_due", destinations=list(destinations), ahead=self._database.ahead)
        return bool(found[0][0])
