"""A message as NATS carries it: no keys, and headers whose values lose their edges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from postlude.core.envelope import BrokerMessage
from postlude.ports.broker import Received

ID = "Nats-Msg-Id"
KEY = "postlude-key"
ESCAPED = "postlude-escaped"
"""Names of headers whose values are percent-encoded, as CloudEvents does it; all others are as they are."""

LINE = 4
"""Bytes of a header's line beside its name and value."""

_PLAIN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_SAFE = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
_SUBJECT = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")


def is_subject(topic: str) -> bool:
    return _SUBJECT.fullmatch(topic) is not None


def headers_of(message: BrokerMessage) -> dict[str, str]:
    headers = dict(message.headers)
    if message.key is not None:
        headers[KEY] = message.key
    escaped = [name for name, value in headers.items() if not _PLAIN.fullmatch(value)]
    for name in escaped:
        value = headers[name]
        edges = value != value.strip()
        headers[name] = quote(value, safe=_SAFE.lstrip() if edges else _SAFE)
    if escaped:
        headers[ESCAPED] = ",".join(escaped)
    headers[ID] = str(message.id)
    return headers


def size_of(headers: Mapping[str, str], payload: bytes) -> int:
    """What the server counts against its limit. A message above it would cost us the connection."""
    return len(payload) + 14 + sum(len(name) + len(value) + LINE for name, value in headers.items())


def received(message: Any) -> Received:
    headers: dict[str, str] = dict(message.headers or {})
    for name in filter(None, headers.pop(ESCAPED, "").split(",")):
        if name in headers:
            headers[name] = unquote(headers[name])
    key = headers.pop(KEY, None)
    if headers.get(ID) == headers.get("ce_id"):
        headers.pop(ID, None)
    return Received(topic=message.subject, key=key, payload=message.data, headers=headers, place=message)
