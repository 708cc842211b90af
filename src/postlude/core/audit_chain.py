"""The audit chain: what a record is in bytes, how one hash follows from another, and what is wrong with a chain."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

Detail = Mapping[str, str | int | bool]
_HEAD = re.compile(r"(0):|([1-9][0-9]*):([0-9a-f]{64})")


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, when and why. `position` and `hash` are its place in the chain; None: it is not linked yet."""

    id: UUID
    at: datetime
    actor: str
    action: str
    target: str
    reason: str = ""
    detail: Detail = msgspec.field(default_factory=dict)
    trace_id: str | None = None
    old_status: str | None = None
    new_status: str | None = None
    position: int | None = None
    hash: str | None = None


class Link(msgspec.Struct, frozen=True):
    """A place in the chain."""

    position: int
    audit_id: UUID
    row_hash: bytes
    hash: bytes


class Head(msgspec.Struct, frozen=True):
    """Where the chain ends."""

    position: int = 0
    hash: bytes = b""

    def __str__(self) -> str:
        return f"{self.position}:{self.hash.hex()}"


def parse_head(text: str | None) -> Head | None:
    """None: that is no head."""
    found = _HEAD.fullmatch(text or "")
    if found is None:
        return None
    return Head() if found[1] else Head(int(found[2]), bytes.fromhex(found[3]))


def instant(at: datetime) -> str:
    """A moment as the chain knows it: UTC, always with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def canonical(record: AuditRecord) -> bytes:
    """A JSON array of all that is not its place, with sorted keys inside: the same from both databases and a copy."""
    parts: list[Any] = [str(record.id), instant(record.at), record.actor, record.action, record.target, record.reason]
    parts += [record.detail, record.trace_id, record.old_status, record.new_status]
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def row_hash(record: AuditRecord) -> bytes:
    return sha256(canonical(record)).digest()


def link_hash(previous: bytes, row: bytes) -> bytes:
    return sha256(previous + row).digest()


def linked(head: Head, records: list[AuditRecord]) -> tuple[Head, list[Link], list[AuditRecord]]:
    """The chain with these records at its end: the new head, their links, and the records with their places."""
    links: list[Link] = []
    placed: list[AuditRecord] = []
    for record in records:
        row = row_hash(record)
        head = Head(head.position + 1, link_hash(head.hash, row))
        links.append(Link(head.position, record.id, row, head.hash))
        placed.append(msgspec.structs.replace(record, position=head.position, hash=head.hash.hex()))
    return head, links, placed
