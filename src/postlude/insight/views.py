"""What insight shows, and how it is made of rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.core.lifecycle import Status
from postlude.core.outcome import Fault

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[Row]


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery, open or settled, with what one wants to know of its event."""

    seq: int
    event_id: UUID
    destination: str
    status: Status
    type: str | None = None
    key: str | None = None
    lane: int | None = None
    priority: int | None = None
    attempts: int = 0
    max_attempts: int | None = None
    available_at: datetime | None = None
    blocks: bool = False
    error: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """The proof of a settled delivery."""

    seq: int
    event_id: UUID
    destination: str
    outcome: Status
    attempts: int
    settled_at: datetime
    worker: UUID | None = None
    actor: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Some of a list; give `after` back to get what follows. None: that was all."""

    items: list[DeliveryView]
    after: str | None = None

    def __iter__(self) -> Any:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class EventStory(msgspec.Struct, frozen=True):
    """All of one event: what it says, where it went, what caused it and what it caused."""

    event: StoredEvent
    deliveries: list[DeliveryView]
    receipts: list[ReceiptView]
    causes: list[UUID]
    caused: list[UUID]


class DestinationView(msgspec.Struct, frozen=True, kw_only=True):
    """A destination and its open work."""

    name: str
    kind: str | None
    open: dict[str, int]
    oldest_due_seconds: float
    blocked_keys: int
    lanes: int
    lanes_owned: int
    crashes: int
    paused_at: datetime | None = None
    paused_by: str | None = None
    reason: str | None = None


def delivery_of(row: Row) -> DeliveryView:
    names = DeliveryView.__struct_fields__
    values = {name: value for name, value in row.items() if name in names}
    values["status"] = Status(row["status"])
    values["blocks"] = bool(row.get("blocks"))
    values["error"] = fault_text(row.get("last_error"))
    return DeliveryView(**values)


def receipt_of(row: Row) -> ReceiptView:
    names = ReceiptView.__struct_fields__
    return ReceiptView(**{**{name: row[name] for name in names if name in row}, "outcome": Status(row["outcome"])})


def destination_of(name: str, known: Row, stats: Rows, owners: Row) -> DestinationView:
    return DestinationView(
        name=name,
        kind=known.get("kind"),
        open={row["status"]: row["entries"] for row in stats},
        oldest_due_seconds=max(
            (row["oldest_due_seconds"] or 0.0 for row in stats if row["status"] != "dead"), default=0.0
        ),
        blocked_keys=sum(row["blocked_keys"] or 0 for row in stats),
        lanes=owners.get("lanes", 0),
        lanes_owned=owners.get("owned", 0),
        crashes=owners.get("crashes") or 0,
        paused_at=known.get("paused_at"),
        paused_by=known.get("paused_by"),
        reason=known.get("reason"),
    )


def fault_text(stored: str | None) -> str | None:
    """A stored error, for people."""
    if stored is None:
        return None
    try:
        return str(msgspec.json.decode(stored, type=Fault))
    except msgspec.MsgspecError:
        return stored
