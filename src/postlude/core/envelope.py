"""The wire form of an event: CloudEvents 1.0 in binary mode, W3C traceparent, one message id equal to the event id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeGuard
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.errors import NotEncodable

TRACEPARENT = "traceparent"
MAX_HEADERS = 64
MAX_HEADER_BYTES = 16_384
_HEADER = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")
_VALUE = re.compile("[^\\r\\n\\x00\\ud800-\\udfff]*")
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_OURS = ("ce_", "ce-", "cloudevents", "postlude")
_headers = msgspec.json.Decoder(dict[str, str])
_RESERVED = frozenset({"content-type", "message_id", "message-id", "correlation_id", "causation_id"})


class BrokerMessage(msgspec.Struct, frozen=True, gc=False):
    """What a broker is given: bytes, headers, where to and under which key."""

    id: UUID
    topic: str
    key: str | None
    payload: bytes
    headers: dict[str, str]


def check_headers(headers: Mapping[Any, Any] | None) -> dict[str, str]:
    """The caller's own headers, names in lower case. What we set ourselves is refused, so nothing can differ."""
    checked: dict[str, str] = {}
    if not headers:
        return checked
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise NotEncodable(f"header {name!r} is not text to text", hint="Header names and values are strings.")
        lower = name.lower()
        if not _HEADER.fullmatch(lower) or not _VALUE.fullmatch(value):
            raise NotEncodable(
                f"header {name!r} is not allowed",
                hint="Names have letters, digits, . _ - and at most 128 characters; values have no line breaks.",
            )
        if lower.startswith(_OURS) or lower in _RESERVED:
            raise NotEncodable(
                f"header {name!r} is set by Postlude",
                hint="Use the arguments of append (id, correlation_id, causation_id, ...) or another name.",
            )
        checked[lower] = value
    size = sum(len(name) + len(value) for name, value in checked.items())
    if len(checked) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        raise NotEncodable(
            f"{len(checked)} headers of {size} characters are too many",
            hint=f"At most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} characters.",
        )
    return checked


def stored_headers(text: str | bytes) -> dict[str, str]:
    """Headers as they stand in the log. What a raw SQL producer wrote otherwise than text to text is made text: one
    such row must not stop all that is read with it."""
    try:
        return _headers.decode(text)
    except msgspec.MsgspecError:
        loose = _loose(text)
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in loose.items()
    }


def _loose(text: str | bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def is_traceparent(text: str | None) -> TypeGuard[str]:
    return text is not None and _TRACE.fullmatch(text) is not None


def traceparent(given: str | None, parent: str | None, random: int) -> str:
    """A valid traceparent: the given one, a new span of the parent's trace, or a new trace of 192 random bits."""
    if is_traceparent(given):
        return given
    span = f"{random & (1 << 64) - 1 or 1:016x}"
    if is_traceparent(parent):
        return f"{parent[:36]}{span}{parent[52:]}"
    return f"00-{random >> 64 & (1 << 128) - 1 or 1:032x}-{span}-01"


def message(event: StoredEvent, *, topic: str | None = None) -> BrokerMessage:
    """The message of an event. Our own headers come last and win."""
    headers = {
        **event.headers,
        "content-type": event.content_type,
        "ce_specversion": "1.0",
        "ce_id": str(event.event_id),
        "ce_type": event.type,
        "ce_source": event.source,
        "ce_time": _time(event.created_at),
        "ce_dataversion": str(event.version),
        "ce_correlationid": event.correlation_id,
    }
    if event.entity is not None:
        headers["ce_subject"] = event.entity
    if event.key is not None:
        headers["ce_partitionkey"] = event.key
    if event.causation_id is not None:
        headers["ce_causationid"] = str(event.causation_id)
    return BrokerMessage(event.event_id, topic or event.topic, event.key, event.payload, headers)


def _time(moment: datetime) -> str:
    # RFC 3339, as isoformat() gives it but nine times faster.
    return str(msgspec.to_builtins(moment))
