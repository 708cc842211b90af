"""Rows to records, and records to the arrays that PostgreSQL takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from postlude.core.delivery import Delivery, Fence, StoredEvent
from postlude.core.envelope import stored_headers
from postlude.core.lifecycle import Status
from postlude.ports.settling import Child

_STATUS = {str(status): status for status in Status}


def delivery(row: Iterable[Any]) -> Delivery:
    seq, event_id, lane, key, priority, status, attempts, max_attempts, starts, blocked = row
    return Delivery(seq, event_id, lane, key, priority, _STATUS[status], attempts, max_attempts, starts, blocked)


def event(row: Iterable[Any]) -> StoredEvent:
    (
        event_id,
        type_,
        version,
        source,
        entity,
        key,
        topic,
        content_type,
        payload,
        headers,
        correlation_id,
        causation_id,
        saga_id,
        created_at,
    ) = row
    return StoredEvent(
        event_id, type_, version, source, entity, key, topic, content_type, payload, stored_headers(headers),
        correlation_id or str(event_id), causation_id, saga_id, created_at,
    )  # fmt: skip


def fence(given: Fence, lanes: set[int]) -> dict[str, Any]:
    """The parameters of a fenced statement, for the lanes it touches."""
    epochs = {lane: given.epochs[lane] for lane in lanes if lane in given.epochs}
    return {
        "worker": given.worker,
        "destination": given.destination,
        "lanes": list(epochs),
        "epochs": list(epochs.values()),
    }


def fenced(fence: Fence, delivery: Delivery) -> dict[str, Any] | None:
    """The parameters that name one delivery as it was read, under its fence; None when its lane is lost."""
    epoch = fence.epochs.get(delivery.lane)
    if epoch is None:
        return None
    return {
        "worker": fence.worker,
        "epoch": epoch,
        "seq": delivery.seq,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
    }


def children(given: Sequence[Child]) -> dict[str, Any]:
    """New deliveries of stored events, as arrays."""
    return {
        "event_ids": [child.event_id for child in given],
        "destinations": [child.destination for child in given],
        "lanes": [child.lane for child in given],
        "keys": [child.key for child in given],
    }
