"""An append, prepared: everything decided, nothing executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from postlude.core.event import EventSpec
from postlude.errors import IdConflict


def conflict(ids: Sequence[UUID]) -> IdConflict:
    """Other content is stored under these already."""
    error = IdConflict(f"event {ids[0]} was appended before with other content")
    error.ids = frozenset(ids)
    return error


class Route(msgspec.Struct, frozen=True):
    """One destination of an event, with the lane and key it has there."""

    destination: str
    lane: int
    key: str | None


def distinct(prepared: Sequence[Prepared]) -> list[Prepared]:
    """The same event twice in one append is one event; the same id with other content is refused."""
    found: dict[UUID, Prepared] = {}
    for one in prepared:
        if found.setdefault(one.event_id, one).digest != one.digest:
            raise IdConflict(f"id {one.event_id} stands twice in one append, with different content")
    return list(found.values())


def require_same(received: Sequence[Prepared], stored: Mapping[UUID, tuple[str, int, bytes | None]]) -> None:
    """Type, version and payload of what was received are as they are stored; the way here may have changed the key. Where
    no payload is given, nobody can tell any more, and it is taken for the same."""
    known = [(one, stored.get(one.event_id)) for one in received]
    if other := [one.event_id for one, content in known if not _is_same(one, content)]:
        raise conflict(other)


def _is_same(one: Prepared, content: tuple[str, int, bytes | None] | None) -> bool:
    if content is None:
        return False
    event_type, version, payload = content
    return (event_type, version) == (one.type, one.version) and payload in (None, one.payload)


class Prepared(msgspec.Struct, frozen=True):
    """An event as it will be stored, and where it goes."""

    event_id: UUID
    type: str
    version: int
    source: str
    entity: str | None
    key: str | None
    topic: str
    content_type: str
    payload: bytes
    digest: bytes
    headers: str
    correlation_id: str
    causation_id: UUID | None
    saga_id: UUID | None
    subjects: tuple[str, ...]
    priority: int
    max_attempts: int | None
    available_at: datetime | None
    routes: tuple[Route, ...]
    also: tuple[bytes, ...] = ()
    """Digests that mean the same content: keyed by another key, or by none."""
    seals: EventSpec | None = None
    """Its class, when something of it is sealed or may have to be."""
    is_lost: bool = False
    """Nobody can open it, so that it cannot be compared with what is stored under its id."""

    def is_as(self, digest: bytes | None) -> bool:
        """Is that the digest of the same content?"""
        return digest == self.digest or digest in self.also

    @property
    def status(self) -> str:
        """Delayed entries are born scheduled and do not hold their key."""
        return "pending" if self.available_at is None else "scheduled"
