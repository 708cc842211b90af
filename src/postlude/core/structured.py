"""CloudEvents in structured mode: attributes and data together in one JSON object."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

import msgspec

from postlude.core.envelope import TRACEPARENT, BrokerMessage, is_traceparent
from postlude.errors import Unreadable

CONTENT_TYPE = "content-type"
STRUCTURED = "application/cloudevents+json"
JSON = "application/json"
PREFIX = "ce_"
_JSON = re.compile(r"\s*[^/;]+/(?:[^;]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[a-z0-9]+")
_BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_SPACE = b" \t\r\n"
_NOTHING = (b"", b"null")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def enclosed(message: BrokerMessage) -> BrokerMessage:
    """The same message in structured mode. Headers that are no attributes stay what they are."""
    members: dict[str, Any] = {}
    headers: dict[str, str] = {}
    for name, value in message.headers.items():
        if name.startswith(PREFIX) and is_attribute(attribute := name[len(PREFIX) :]):
            members[attribute] = value
        elif name != CONTENT_TYPE:
            headers[name] = value
    content_type = message.headers.get(CONTENT_TYPE, JSON)
    members["datacontenttype"] = content_type
    if is_traceparent(parent := headers.get(TRACEPARENT)):
        members[TRACEPARENT] = parent
    members.pop("data", None)
    if message.payload:
        members |= _data(content_type, message.payload)
    headers[CONTENT_TYPE] = STRUCTURED
    return BrokerMessage(message.id, message.topic, message.key, msgspec.json.encode(members), headers)


def opened(payload: bytes) -> tuple[dict[str, str], bytes]:
    """The attributes as text, and the data: the very bytes of the JSON text, or what was written in base64."""
    members = _members_of(payload)
    data, coded = (bytes(members.pop(name, b"")) for name in ("data", "data_base64"))
    attributes: dict[str, str] = {}
    for name, raw in members.items():
        if (text := _text(name, raw)) is not None:
            attributes[name] = text
    if coded not in _NOTHING:
        if data not in _NOTHING:
            raise Unreadable("the CloudEvent has both data and data_base64", hint="Send one of the two.")
        return attributes, _decoded(coded)
    # A JSON string of another content type is text that was put into JSON only for the journey.
    if data.startswith(b'"') and not is_json(attributes.get("datacontenttype", JSON)):
        return attributes, str(_value(data)).encode()
    return attributes, data


def is_attribute(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_json(content_type: str) -> bool:
    return content_type == JSON or _JSON.fullmatch(content_type) is not None


def short(name: str) -> str:
    """Names may be said in errors, and only so far: somebody may have put anything there."""
    return repr(name if len(name) <= 40 else f"{name[:40]}...")


def _data(content_type: str, payload: bytes) -> dict[str, Any]:
    """As JSON where it is JSON and comes back byte by byte; the encoder writes bytes in base64."""
    if is_json(content_type) and payload[:1] not in _SPACE and payload[-1:] not in _SPACE:
        try:
            msgspec.json.decode(payload)
        except _BROKEN:
            return {"data_base64": payload}
        return {"data": msgspec.Raw(payload)}
    return {"data_base64": payload}


def _members_of(payload: bytes) -> dict[str, msgspec.Raw]:
    try:
        payload.decode()  # values that are left as they are would not be looked into
        return _members.decode(payload)
    except _BROKEN as error:
        raise Unreadable(f"the CloudEvent is no JSON object: {error}", hint=f"Send what {STRUCTURED} says.") from error


def _text(name: str, raw: msgspec.Raw) -> str | None:
    """As CloudEvents writes a value in text; null means that there is none."""
    value = _value(raw)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return str(value)
    raise Unreadable(
        f"the attribute {short(name)} of the CloudEvent is neither text, an integer nor a boolean",
        hint="Put everything else into the data.",
    )


def _value(raw: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (*_BROKEN, ValueError) as error:
        raise Unreadable(f"a part of the CloudEvent cannot be read: {error}") from error


def _decoded(raw: bytes) -> bytes:
    text = _value(raw)
    try:
        if isinstance(text, str):
            return b64decode(text, validate=True)
    except ValueError:
        pass  # said below
    raise Unreadable("data_base64 of the CloudEvent is not base64", hint="Use the alphabet of RFC 4648, with padding.")
