"""Rows to records, and records to values that SQLite takes: bytes, JSON and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Fence, StoredEvent
from postlude.core.envelope import stored_headers
from postlude.core.lifecycle import Status
from postlude.core.statement import Row
from postlude.ports.settling import Child

_STATUS = {str(status): status for status in Status}
_encode = msgspec.json.Encoder().encode


def json(value: object) -> str:
    return _encode(value).decode()


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def bound(moment: datetime | None) -> float | None:
    """Stored seconds are finer than the microseconds that are shown: a bound lies where the shown time changes."""
    return None if moment is None else moment.timestamp() - 0.5e-6


def uuid(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


def ids(event_ids: Sequence[UUID]) -> dict[str, Any]:
    """The parameters `:ids`, all ids end to end, and `:places`, where each begins (from 1)."""
    ids = b"".join(event_id.bytes for event_id in event_ids)
    return {"ids": ids, "places": json(range_of(len(event_ids)))}


def children(given: Sequence[Child]) -> dict[str, Any]:
    """The parameters `:ids` and `:children`, rows of [id at, destination, lane, key]."""
    places = range_of(len(given))
    rows = [(at, child.destination, child.lane, child.key) for at, child in zip(places, given, strict=True)]
    return {"ids": b"".join(child.event_id.bytes for child in given), "children": json(rows)}


def range_of(count: int) -> list[int]:
    """Where each of so many ids begins."""
    return list(range(1, 16 * count + 1, 16))


def fence(given: Fence, lanes: Iterable[int]) -> dict[str, Any]:
    """The parameters of a fenced statement, for the lanes it touches."""
    epochs = {lane: given.epochs[lane] for lane in set(lanes) if lane in given.epochs}
    return {"worker": given.worker.bytes, "destination": given.destination, "fence": json(epochs)}


def delivery(row: Row) -> Delivery:
    seq, event_id, lane, key, priority, status, attempts, max_attempts, starts, blocked = row
    return Delivery(
        seq, UUID(bytes=event_id), lane, key, priority, _STATUS[status], attempts, max_attempts, starts, bool(blocked)
    )


def event(row: Row) -> StoredEvent:
    event_id, type_, version, source, entity, key, topic, content_type, payload, *context = row
    headers, correlation_id, causation_id, saga_id, created_at = context
    identity = UUID(bytes=event_id)
    return StoredEvent(
        identity, type_, version, source, entity, key, topic, content_type, payload, stored_headers(headers),
        correlation_id or str(identity), uuid(causation_id), uuid(saga_id), moment(created_at),
    )  # fmt: skip


def mapping(row: dict[str, Any]) -> dict[str, Any]:
    """A row as PostgreSQL would give it: ids, times and truth values in their own types."""
    return {name: value if value is None else _TYPES.get(name, _same)(value) for name, value in row.items()}


def _same(value: Any) -> Any:
    return value


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("id", "event_id", "worker"), uuid),
    **dict.fromkeys(("at", "available_at", "created_at", "settled_at", "seen_at", "paused_at"), moment),
    **dict.fromkeys(("updated_at", "ended_at", "ran_at", "next_at"), moment),
    **dict.fromkeys(("received_at", "first_at", "last_at", "lag_at"), moment),
    "blocks": bool,
    "detail": msgspec.json.decode,
}


def fenced(fence: Fence, delivery: Delivery) -> dict[str, Any] | None:
    """The parameters that name one delivery as it was read, under its fence; None when its lane is lost."""
    epoch = fence.epochs.get(delivery.lane)
    if epoch is None:
        return None
    return {
        "worker": fence.worker.bytes,
        "epoch": epoch,
        "seq": delivery.seq,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
    }
