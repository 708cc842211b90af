"""The records the engine works with: a stored event, a delivery of it, and the verdict on a delivery."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from postlude.core.lifecycle import Status

PRIORITIES = {"high": 0, "normal": 1, "low": 2}
NORMAL = PRIORITIES["normal"]


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it stands in the log."""

    event_id: UUID
    type: str
    version: int
    source: str
    entity: str | None
    key: str | None
    topic: str
    content_type: str
    payload: bytes
    headers: dict[str, str]
    correlation_id: str
    causation_id: UUID | None
    saga_id: UUID | None
    created_at: datetime


class Delivery(msgspec.Struct, gc=False):
    """One open piece of work: an event on its way to a destination."""

    seq: int
    event_id: UUID
    lane: int
    key: str | None
    priority: int
    status: Status
    attempts: int
    max_attempts: int | None = None
    starts: int = 0
    blocked: bool = False
    started: bool = False
    """The attempt was committed before it began, so that a failure must not count it again."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What a delivery becomes when it was not sent. It holds only if the row is still as it was read."""

    seq: int
    lane: int
    was_status: Status
    was_attempts: int
    status: Status
    attempts: int
    starts: int = 0
    blocks: bool = False
    delay: float = 0.0
    until: datetime | None = None
    error: str | None = None


class Fence(msgspec.Struct, frozen=True):
    """Proof of ownership that every settle carries: who owns which lanes of a destination, since which epoch."""

    worker: UUID
    destination: str
    epochs: dict[int, int]
