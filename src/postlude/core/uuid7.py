"""UUIDv7: ids that sort by the time they were made, so that events land in time partitions."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

_RAND_A = (1 << 12) - 1
_RAND_B = (1 << 62) - 1


def uuid7(milliseconds: int, random: int) -> UUID:
    """An id of that time, with 74 of the given random bits."""
    high = (milliseconds & ((1 << 48) - 1)) << 16 | 0x7000 | (random >> 62) & _RAND_A
    low = 1 << 63 | random & _RAND_B
    return UUID(int=high << 64 | low)


def time_of(event_id: UUID) -> datetime | None:
    """When a v7 id was made; None for ids of other versions. Its 48 bits reach beyond the years that Python knows."""
    if event_id.version != 7:
        return None
    try:
        return datetime.fromtimestamp((event_id.int >> 80) / 1000, UTC)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)


def first_of(moment: datetime) -> UUID:
    """The smallest id of that moment: the bound of a time partition."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)
