"""Consumers of brokers: what came, what became of it, and what is still to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.errors import ConfigurationError, NaiveDatetime
from postlude.ports.receiving import InboxFilter, Receiving
from postlude.ports.records import Records

MAX_SEEN = 10_000

Served = Callable[[], Mapping[str, Sequence[str]]]
"""The consumers that an app declares, and everywhere their messages go."""


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer. Open work and dead letters are known to the app that declares it."""

    name: str
    received: int
    """Messages that came, also those that came again."""
    duplicates: int
    ignored: int
    unreadable: int
    open: int | None = None
    dead: int | None = None
    lag: int | None = None
    """Messages that the broker still has for it; None where it cannot tell."""
    lag_age_seconds: float | None = None
    """How long ago that was told; None: never yet."""
    first_at: datetime
    last_at: datetime | None = None
    """When the last message came."""


class SeenView(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a consumer has seen, for as long as the inbox remembers."""

    consumer: str
    event_id: UUID
    topic: str | None
    """Where it came from; None: taken by `inbox.once`."""
    received_at: datetime


class Inboxes:
    """Of one database."""

    def __init__(self, receiving: Receiving, records: Records, served: Served) -> None:
        self._receiving = receiving
        self._records = records
        self._served = served

    async def consumers(self) -> list[ConsumerView]:
        """Every consumer that ever joined, by name."""
        found = await self._receiving.consumers()
        if not found:
            return []
        stats, now, served = await self._records.stats(), await self._records.now(), self._served()
        return [_consumer(row, served.get(row["consumer"]), stats, now) for row in found]

    async def seen(self, which: InboxFilter, limit: int) -> list[SeenView]:
        """What consumers have seen, newest first."""
        if not 1 <= limit <= MAX_SEEN:
            raise ConfigurationError(f"limit must lie between 1 and {MAX_SEEN}, not {limit}")
        for name in ("since", "until"):
            moment = getattr(which, name)
            if moment is not None and moment.tzinfo is None:
                raise NaiveDatetime(f"{name} {moment.isoformat()} has no time zone")
        return [SeenView(**row) for row in await self._receiving.seen(which, limit=limit)]


def _consumer(
    row: dict[str, Any], destinations: Sequence[str] | None, stats: Sequence[dict[str, Any]], now: datetime
) -> ConsumerView:
    mine = [one for one in stats if destinations is not None and one["destination"] in destinations]
    dead = sum(one["entries"] for one in mine if one["status"] == "dead")
    told = row["lag_at"]
    return ConsumerView(
        name=row["consumer"],
        received=row["received"],
        duplicates=row["duplicates"],
        ignored=row["ignored"],
        unreadable=row["unreadable"],
        open=None if destinations is None else sum(one["entries"] for one in mine) - dead,
        dead=None if destinations is None else dead,
        lag=row["lag"],
        lag_age_seconds=None if told is None else max(0.0, (now - told).total_seconds()),
        first_at=row["first_at"],
        last_at=row["last_at"],
    )
