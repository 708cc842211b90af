"""Lanes: which lane an entry falls in, and how lanes are shared between workers."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID
from zlib import crc32

LANES = 64
ROUTE = "route"
"""The destination of raw SQL producers; its rows wait in lane 0 until the relay expands them."""


def lane_of(key: str | None, event_id: UUID, lanes: int) -> int:
    """The lane of an entry: by key, so that a key's entries share one owner; by id when there is no key."""
    return crc32(event_id.bytes if key is None else key.encode()) % lanes


def quota(lanes: int, workers: Sequence[UUID], me: UUID) -> int:
    """How many lanes are my fair share. `workers` are the live ones by start time, so a newcomer moves nobody."""
    if me not in workers:
        return 0
    share, rest = divmod(lanes, len(workers))
    return share + (workers.index(me) < rest)
