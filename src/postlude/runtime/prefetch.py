"""Events fetched ahead, so that no entry pays a round trip of its own and no batch waits for its events."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from postlude.core.delivery import StoredEvent
from postlude.ports.reading import Reading


class Prefetch:
    """Bounded; what was not kept is fetched when it is needed."""

    def __init__(self, reading: Reading, limit: int) -> None:
        self._reading = reading
        self._limit = limit
        self._kept: dict[UUID, StoredEvent] = {}

    async def fetch(self, event_ids: Sequence[UUID]) -> None:
        """Fetch ahead what will be taken soon."""
        wanted = [event_id for event_id in event_ids if event_id not in self._kept][: self._limit]
        if wanted:
            self._kept.update(await self._reading.events(wanted))
        for event_id in list(self._kept)[: -self._limit]:
            del self._kept[event_id]

    def keep(self, event: StoredEvent) -> None:
        """One that is known already."""
        self._kept[event.event_id] = event

    async def take(self, event_ids: Sequence[UUID]) -> dict[UUID, StoredEvent]:
        """The events of entries that are about to be delivered."""
        events = {event_id: self._kept.pop(event_id) for event_id in event_ids if event_id in self._kept}
        missing = [event_id for event_id in event_ids if event_id not in events]
        if missing:
            events.update(await self._reading.events(missing))
        return events
