"""A record as a line of JSON, and back: the form of copies and exports."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from postlude.core.audit_chain import AuditRecord, instant


def as_json(record: AuditRecord) -> dict[str, Any]:
    """In the order of its place, then of its fields; times to the microsecond."""
    fields = msgspec.structs.asdict(record)
    place = {"position": fields.pop("position"), "hash": fields.pop("hash")}
    return {**place, **fields, "id": str(record.id), "at": instant(record.at)}


def line_of(record: AuditRecord) -> bytes:
    """Without its end."""
    return json.dumps(as_json(record), separators=(",", ":")).encode()


class _Copied(AuditRecord, frozen=True, kw_only=True):
    """With a place, and with whatever its detail holds."""

    detail: dict[str, Any] = msgspec.field(default_factory=dict)
    position: int
    hash: str


_decode = msgspec.json.Decoder(_Copied).decode


def record_of(line: bytes) -> AuditRecord | None:
    """None: that is no record of a copy."""
    try:
        copied = _decode(line)
        bytes.fromhex(copied.hash)
    except (msgspec.DecodeError, ValueError):
        return None
    return AuditRecord(**msgspec.structs.asdict(copied)) if copied.at.tzinfo is not None else None
