"""Records of the audit trail to values and back, the same for both databases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.audit_chain import AuditRecord, Head, parse_head
from postlude.errors import AuditBroken
from postlude.ports.audit import AuditEntry
from postlude.ports.trace import trace_id

SINK = "audit_sink:"
"""Before the name of a sink, in `postlude_meta`."""
COLUMNS = 10
"""Of a record, in the order of its fields."""


def audit_values(entry: AuditEntry) -> dict[str, Any]:
    detail = msgspec.json.encode(entry.detail).decode()
    return {**msgspec.structs.asdict(entry), "detail": detail, "trace_id": entry.trace_id or trace_id()}


def record(row: Sequence[Any], moment: Callable[[Any], datetime], id: UUID) -> AuditRecord:
    """A record as it was read. What cannot be read at all was tampered with, and is told by a hash that does not fit."""
    try:
        _, at, *texts = row[:COLUMNS]
        detail = msgspec.json.decode(texts.pop(4), type=dict[str, Any])
        actor, action, target, reason, trace_id, old_status, new_status = map(_text, texts)
        return AuditRecord(
            id=id, at=moment(at), actor=actor or "", action=action or "", target=target or "", reason=reason or "",
            detail=detail, trace_id=trace_id, old_status=old_status, new_status=new_status,
        )  # fmt: skip
    except (ValueError, TypeError, OverflowError):
        return AuditRecord(id=id, at=datetime.fromtimestamp(0, UTC), actor="", action="unreadable", target="")


def _text(value: object) -> str | None:
    """SQLite keeps anything in any column."""
    if value is None or isinstance(value, str):
        return value
    raise TypeError(type(value).__name__)


def placed(one: AuditRecord, position: int | None, digest: bytes | None) -> AuditRecord:
    return one if position is None else msgspec.structs.replace(one, position=position, hash=bytes(digest or b"").hex())


def head_of(text: str | None, last: Sequence[Any] | None) -> Head:
    """The head, if it is where the last link is."""
    head = parse_head(text)
    position, digest = (last[0], bytes(last[1])) if last else (0, b"")
    if head is None or (head.position, head.hash) != (position, digest):
        raise AuditBroken(f"the head of the audit chain does not fit its last link at position {position}")
    return head
