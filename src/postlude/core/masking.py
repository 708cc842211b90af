"""Payloads as they may be looked at: names and shape, without what they say."""

from __future__ import annotations

from typing import Any

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.core.sealing import HEADER, Seal, opened
from postlude.errors import CannotOpen

SEALED = "<sealed>"


def masked(value: Any) -> Any:
    """Every value by its type; names, lengths of lists and what is null stay."""
    if isinstance(value, dict):
        return {name: masked(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [masked(one) for one in value]
    if value is None or value == SEALED:
        return value
    if isinstance(value, bool):
        return "<boolean>"
    return "<number>" if isinstance(value, int | float) else "<text>"


def masked_payload(event: StoredEvent) -> Any:
    """Of what is no JSON only the size can be said."""
    payload = event.payload
    try:
        if HEADER in event.headers:
            seal = Seal.read(event.headers[HEADER])
            payload = opened(payload, seal.paths, lambda *_: msgspec.json.encode(SEALED))
        return masked(msgspec.json.decode(payload))
    except (CannotOpen, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"<{len(event.payload)} bytes>"
