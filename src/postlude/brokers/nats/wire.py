"""A message as NATS carries it: no keys, and headers whose values lose their edges. Attributes of CloudEvents have the
names and the percent-encoding that its bindings for NATS and HTTP share: `ce_id` is `ce-id` there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from postlude.core.envelope import BrokerMessage
from postlude.ports.broker import Received

ID = "Nats-Msg-Id"
PIN = "Nats-Pin-Id"
"""The server's: which member it has pinned."""
KEY = "postlude-key"
ESCAPED = "postlude-escaped"
"""Names of headers whose values are percent-encoded, besides attributes of CloudEvents; all others are as they are."""
OURS, THEIRS = "ce_", "ce-"
CONTENT_TYPE = "content-type"
STRUCTURED = "application/cloudevents"

LINE = 4
"""Bytes of a header's line beside its name and value."""

_PLAIN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_SAFE = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
_UNQUOTED = re.compile(r"[!#$&-~]*")
_ATTRIBUTE = "".join(filter(_UNQUOTED.fullmatch, map(chr, range(0x21, 0x7F))))
_SUBJECT = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")


def is_subject(topic: str) -> bool:
    return _SUBJECT.fullmatch(topic) is not None


def headers_of(message: BrokerMessage) -> dict[str, str]:
    headers: dict[str, str] = {}
    escaped: list[str] = []
    for name, value in message.headers.items():
        if name.startswith(OURS):
            plain = _UNQUOTED.fullmatch(value)
            headers[THEIRS + name[len(OURS) :]] = value if plain else quote(value, safe=_ATTRIBUTE)
        else:
            headers[name] = _escaped(name, value, escaped)
    if message.key is not None:
        headers[KEY] = _escaped(KEY, message.key, escaped)
    if escaped:
        headers[ESCAPED] = ",".join(escaped)
    headers[ID] = str(message.id)
    return headers


def _escaped(name: str, value: str, escaped: list[str]) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped.append(name)
    return quote(value, safe=_SAFE.lstrip() if value != value.strip() else _SAFE)


def size_of(headers: Mapping[str, str], payload: bytes) -> int:
    """What the server counts against its limit. A message above it would cost us the connection."""
    return len(payload) + 14 + sum(map(len, headers)) + sum(map(len, headers.values())) + LINE * len(headers)


def received(message: Any) -> Received:
    carried: dict[str, str] = dict(message.headers or {})
    for name in filter(None, carried.pop(ESCAPED, "").split(",")):
        if name in carried:
            carried[name] = unquote(carried[name])
    key = carried.pop(KEY, None)
    carried.pop(PIN, None)
    headers: dict[str, str] = {}
    for name, value in carried.items():
        if name[: len(THEIRS)].lower() == THEIRS:
            headers[OURS + name[len(THEIRS) :].lower()] = unquote(value)
        else:
            headers[name] = value
    # Where the event says its id itself, this one is only for the server.
    if headers.get(ID) == headers.get("ce_id") or headers.get(CONTENT_TYPE, "").startswith(STRUCTURED):
        headers.pop(ID, None)
    return Received(topic=message.subject, key=key, payload=message.data, headers=headers, place=message)
