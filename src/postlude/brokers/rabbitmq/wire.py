"""Our messages as AMQP has them: properties, headers of text, the key in a header. Attributes of CloudEvents have the
names of its binding for AMQP: `ce_id` is `cloudEvents:id` there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
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
STRUCTURED = "application/cloudevents"
PERSISTENT = 2
OURS, THEIRS = "ce_", "cloudEvents:"
_ATTRIBUTE = re.compile(r"(?:cloudevents[:_]|ce-)(.+)", re.IGNORECASE | re.DOTALL)
"""What is read: both forms of that binding, and the names that Knative uses on RabbitMQ."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def properties(message: BrokerMessage) -> Basic.Properties:
    headers: dict[str, Any] = {
        THEIRS + name[len(OURS) :] if name.startswith(OURS) else name: value for name, value in message.headers.items()
    }
    if content_type := _short(headers.get(CONTENT_TYPE)):
        del headers[CONTENT_TYPE]
    if message.key is not None:
        headers[KEY] = message.key
    return Basic.Properties(
        app_id=APP,
        content_type=content_type,
        correlation_id=_short(message.headers.get("ce_correlationid")),
        delivery_mode=PERSISTENT,
        headers=headers,
        message_id=str(message.id),
        message_type=_short(message.headers.get("ce_type")),
    )


def received(message: DeliveredMessage, place: Any) -> Received:
    """What the server delivered. What is no CloudEvent also shows its properties as headers."""
    found, delivery = message.header.properties, cast("Basic.Deliver", message.delivery)
    headers = _headers(found.headers or {})
    if "ce_id" not in headers and not (found.content_type or "").startswith(STRUCTURED):
        own = {"message_id": found.message_id, "correlation_id": found.correlation_id, "type": found.message_type}
        headers = {name: value for name, value in own.items() if value} | headers
    if found.content_type is not None:
        headers[CONTENT_TYPE] = found.content_type
    key = headers.pop(KEY, None)
    if key is None:
        key = headers.get("ce_partitionkey")
    return Received(delivery.routing_key or "", key, message.body, headers, place)


def _headers(table: Mapping[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in table.items():
        if (found := _ATTRIBUTE.fullmatch(name)) is None:
            headers[name] = _text(value)
        else:
            attribute = found[1].lower()
            headers[OURS + attribute] = _time(value) if attribute == "time" else _text(value)
    return headers


def _short(value: str | None) -> str | None:
    """A property is at most 255 bytes. The header has it in full."""
    return value if value is not None and len(value.encode()) <= 255 else None


def _time(value: Any) -> str:
    """Others write milliseconds, or a timestamp of AMQP's own."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return _text(_EPOCH + timedelta(milliseconds=value))
        except OverflowError:
            return str(value)
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return str(msgspec.to_builtins(value if value.tzinfo else value.replace(tzinfo=UTC)))
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    return msgspec.json.encode(value, enc_hook=str).decode()
