"""Events to bytes and back: JSON by msgspec, and pydantic models by their own methods."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from postlude.errors import NotEncodable

CONTENT_TYPE = "application/json"
_encoder = msgspec.json.Encoder()


def encode(event: object) -> bytes:
    """The payload of an event, exactly as it is stored and published."""
    try:
        if hasattr(event, "model_dump_json"):
            return bytes(event.model_dump_json().encode())
        return _encoder.encode(event)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError) as error:
        raise NotEncodable(
            f"{type(event).__name__} cannot be written as JSON: {error}",
            hint="Use fields of plain types: text, numbers, dates, UUIDs, decimals, lists, mappings, nested structures.",
        ) from error


def decode(cls: type[Any], payload: bytes) -> Any:
    """The event of that class. Raises ValueError or msgspec.ValidationError when the payload does not fit."""
    if hasattr(cls, "model_validate_json"):
        return cls.model_validate_json(payload)
    return msgspec.json.decode(payload, type=cls)


def digest(event_type: str, version: int, content_type: str, key: str | None, payload: bytes) -> bytes:
    """What 'same content' means for two appends with one id."""
    # A JSON list ends where it ends: no two contents can read alike.
    content = sha256(_encoder.encode((event_type, version, content_type, key)))
    content.update(payload)
    return content.digest()
