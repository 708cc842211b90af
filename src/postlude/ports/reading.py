"""What the relay reads of a database. The rules of `postlude.ports.store` hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, StoredEvent
from postlude.core.floors import Track


class News(msgspec.Struct, frozen=True):
    """Rows appeared in a lane."""

    destination: str
    lane: int
    priority: int
    pending: bool
    entries: int


class Reading(Protocol):
    """What the relay reads. No method takes locks."""

    async def last_seq(self) -> int:
        """The last seq handed out, committed or not."""

    async def appenders(self) -> frozenset[str]:
        """Transactions that may still commit a delivery. Empty where seq order is commit order."""

    async def news(self, after: int, limit: int) -> list[News]:
        """Which lanes have rows above a seq, looking at no more than `limit` rows."""

    async def read_pending(self, destination: str, tracks: Sequence[Track], limit: int) -> list[Delivery]:
        """Pending rows above each track's floor, at most `limit` of each, in seq order. Blocked ones are flagged,
        never left out."""

    async def read_due(
        self, destination: str, lanes: Sequence[int], limit: int, excluding: Sequence[int]
    ) -> list[Delivery]:
        """Failed, scheduled and claimed rows whose time has come, at most `limit` a lane, flagged likewise."""

    async def freed(self, destination: str, keys: Sequence[tuple[str, int]]) -> list[str]:
        """Which keys have nothing before their seq any more that blocks."""

    async def events(self, event_ids: Sequence[UUID]) -> dict[UUID, StoredEvent]:
        """Events by id; those that are missing are left out."""

    async def has_due(self, destinations: Sequence[str]) -> bool:
        """Is there anything that could be delivered now to these destinations?"""
