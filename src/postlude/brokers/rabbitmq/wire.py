"""Our messages as AMQP has them: properties, headers of text, the key in a header."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from postlude.core.envelope import BrokerMessage
from postlude.ports.broker import Received

APP = "postlude"
KEY = "postlude-key"
"""AMQP has no keys. Users cannot set a header of this name."""
CONTENT_TYPE = "content-type"
PERSISTENT = 2


def properties(message: BrokerMessage) -> Basic.Properties:
    headers: dict[str, Any] = dict(message.headers)
    if content_type := _short(headers.get(CONTENT_TYPE)):
        del headers[CONTENT_TYPE]
    if message.key is not None:
        headers[KEY] = message.key
    return Basic.Properties(
        app_id=APP,
        content_type=content_type,
        correlation_id=_short(headers.get("ce_correlationid")),
        delivery_mode=PERSISTENT,
        headers=headers,
        message_id=str(message.id),
        message_type=_short(headers.get("ce_type")),
    )


def received(message: DeliveredMessage, place: Any) -> Received:
    """What the server delivered. A foreign message also shows the properties that ours have as headers."""
    found, delivery = message.header.properties, cast("Basic.Deliver", message.delivery)
    headers = {str(name): _text(value) for name, value in (found.headers or {}).items()}
    if found.app_id != APP:
        own = {"message_id": found.message_id, "correlation_id": found.correlation_id, "type": found.message_type}
        headers = {name: value for name, value in own.items() if value} | headers
    if found.content_type is not None:
        headers[CONTENT_TYPE] = found.content_type
    key = headers.pop(KEY, None)
    if key is None:
        key = headers.get("ce_partitionkey")
    return Received(delivery.routing_key or "", key, message.body, headers, place)


def _short(value: str | None) -> str | None:
    """A property is at most 255 bytes. The header has it in full."""
    return value if value is not None and len(value.encode()) <= 255 else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    return msgspec.json.encode(value, enc_hook=str).decode()
