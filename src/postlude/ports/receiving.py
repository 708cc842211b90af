"""What consumers of brokers ask of a database."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from postlude.ports.append import Prepared


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that a consumer took from a broker; each event stands in it once."""

    consumer: str
    events: Sequence[Prepared]
    duplicates: int = 0
    ignored: int = 0
    unreadable: frozenset[UUID] = frozenset()
    """Of the events: kept as they came."""

    def counts(self, new: AbstractSet[UUID]) -> dict[str, Any]:
        """What is added to the consumer's counts when these were new to it."""
        known = len(self.events) - len(new)
        return {
            "consumer": self.consumer,
            "received": len(self.events) + self.duplicates + self.ignored,
            "duplicates": self.duplicates + known,
            "ignored": self.ignored,
            "unreadable": len(self.unreadable & new),
        }


class InboxFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages are meant; what is None does not count."""

    consumer: str | None = None
    topic: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Receiving(Protocol):
    """Consumers of brokers."""

    async def begin(self, consumer: str) -> tuple[datetime, datetime]:
        """Since when this consumer exists, and what time it is."""

    async def open_entries(self, destinations: Sequence[str], limit: int) -> int:
        """How much work is open there, dead letters apart, counted up to a limit."""

    async def record_lag(self, consumer: str, lag: int | None) -> None: ...
    async def consumers(self) -> list[dict[str, Any]]:
        """What each consumer took, and what became of it."""

    async def seen(self, which: InboxFilter, *, limit: int) -> list[dict[str, Any]]:
        """What consumers have seen, newest first."""
