"""A message that came, read as the event it is: CloudEvents 1.0 in binary or structured mode, ours and others'."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from postlude.core.envelope import TRACEPARENT, is_traceparent
from postlude.core.event import MAX_KEY, TEXT
from postlude.core.identity import identity, uuid_of
from postlude.core.redaction import HEADER as REDACTED
from postlude.core.structured import CONTENT_TYPE, JSON, PREFIX, STRUCTURED, is_attribute, opened, short
from postlude.errors import Unreadable

MAX_TYPE = 200
MAX_VERSION = 32_767
REQUIRED = ("id", "type", "source", "specversion")

_PREFIXES = ("ce_", "ce-", "cloudevents:", "cloudevents_")
_LONG = len("cloudevents:")
_MEDIA = "application/cloudevents"
_SPEC = re.compile(r"1\.[0-9]{1,9}")


class Incoming(msgspec.Struct, frozen=True):
    """An event of somebody else's outbox, checked: a database can hold every part of it."""

    event_id: UUID
    type: str
    version: int
    source: str
    entity: str | None
    key: str | None
    content_type: str
    payload: bytes
    headers: dict[str, str]
    """The producer's own, in lower case; a valid `traceparent`; attributes that we do not know, as `ce_NAME`."""
    correlation_id: str | None
    causation_id: UUID | None
    sent_at: datetime | None


def read_message(key: str | None, payload: bytes, headers: Mapping[str, str]) -> Incoming:
    """Raises only `Unreadable`."""
    _require_text("a header", "".join(headers), "".join(headers.values()))
    attributes, own = _sorted(headers)
    content_type = own.pop(CONTENT_TYPE, "")
    if content_type != JSON and (kind := content_type.strip().lower()).startswith(_MEDIA):
        _require_known(kind)
        own |= _foreign_names(attributes)
        attributes, payload = _opened(payload)
        content_type = ""
    elif not attributes:
        # Some brokers have no headers, or had none once: nobody says there what a message is.
        if content_type or b'"specversion"' not in payload:
            raise _no_event()
        attributes, payload = _opened(payload)
    return _incoming(attributes, own, key, content_type, payload)


def _sorted(headers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Attributes, however their names are spelled, and everything else. Our own spelling wins. Nobody else says what is
    redacted here."""
    attributes: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if name == lower and name.startswith(PREFIX):
            attributes[name[3:]] = value
        elif lower.startswith(_PREFIXES):
            attributes.setdefault(lower[3:] if lower[1] == "e" else lower[_LONG:], value)
        elif lower != REDACTED and (name == lower or lower not in own):
            own[lower] = value
    return attributes, own


def _incoming(
    attributes: dict[str, str], own: dict[str, str], key: str | None, content_type: str, payload: bytes
) -> Incoming:
    take = attributes.pop
    given, kind, source, spec = take("id", ""), take("type", ""), take("source", ""), take("specversion", "")
    if not (given and kind and source and spec):
        raise _incomplete(given, kind, source, spec)
    if spec != "1.0" and not _SPEC.fullmatch(spec):
        raise Unreadable(f"CloudEvents {short(spec)} is not known", hint="Send CloudEvents 1.0.")
    if len(kind) > MAX_TYPE:
        raise Unreadable(f"the type has {len(kind)} characters", hint=f"A type has at most {MAX_TYPE} characters.")
    causation_id = uuid_of(causation) if (causation := attributes.get("causationid")) else None
    if causation_id is not None:
        del attributes["causationid"]
    declared = take("datacontenttype", "")
    trace = take(TRACEPARENT, None)
    incoming = Incoming(
        event_id=identity(given, source),
        type=kind,
        version=_version(take("dataversion", "")),
        source=source,
        entity=take("subject", None) or None,
        key=_key(take("partitionkey", None) or key),
        content_type=content_type or declared or JSON,
        payload=payload,
        headers=own,
        correlation_id=take("correlationid", None) or None,
        causation_id=causation_id,
        sent_at=_time(take("time", "")),
    )
    if not is_traceparent(own.get(TRACEPARENT)):
        own.pop(TRACEPARENT, None)
        if is_traceparent(trace):
            own[TRACEPARENT] = trace
    for name, value in attributes.items():
        own[PREFIX + name] = value
    return incoming


def _opened(payload: bytes) -> tuple[dict[str, str], bytes]:
    members, data = opened(payload)
    if not members:
        raise _no_event()
    _require_text("an attribute", "".join(members), "".join(members.values()))
    attributes: dict[str, str] = {}
    for name, value in members.items():
        lower = name.lower()
        if lower not in attributes or lower == name:
            attributes[lower] = value
    return attributes, data


def _foreign_names(attributes: Mapping[str, str]) -> dict[str, str]:
    """In structured mode attributes among the headers are copies; what cannot be one is a header like any other."""
    return {PREFIX + name: value for name, value in attributes.items() if not is_attribute(name)}


def _require_known(kind: str) -> None:
    if kind.partition(";")[0].rstrip() == STRUCTURED:
        return
    if kind.startswith(f"{_MEDIA}-batch"):
        raise Unreadable("the message is a batch of CloudEvents", hint="Send each event as a message of its own.")
    raise Unreadable(f"the format {short(kind)} of CloudEvents is not known", hint=f"Send {STRUCTURED}.")


def _require_text(what: str, *texts: str) -> None:
    for text in texts:
        if "\0" in text or not (text.isascii() or TEXT.fullmatch(text)):
            raise Unreadable(
                f"{what} has a NUL or a lone surrogate",
                hint="No database can hold it: send text, and put binary content into the data.",
            )


def _key(key: str | None) -> str | None:
    if not key:
        return None
    _require_text("the key", key)
    if len(key) > MAX_KEY:
        raise Unreadable(
            f"the key has {len(key)} characters",
            hint=f"A key has at most {MAX_KEY}: the id of what must stay in order.",
        )
    return key


def _version(text: str) -> int:
    if not text:
        return 1
    if text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= (version := int(text)) <= MAX_VERSION:
        return version
    raise Unreadable(
        "the dataversion of the CloudEvent is no version", hint=f"It is a whole number between 1 and {MAX_VERSION}."
    )


def _time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = msgspec.convert(text, datetime)
        if moment.tzinfo is not None:
            return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        pass  # said below
    raise Unreadable("the time of the CloudEvent is no time", hint="Write it as RFC 3339 says, with its offset.")


def _no_event() -> Unreadable:
    return Unreadable("the message has no attributes of a CloudEvent")


def _incomplete(*found: str) -> Unreadable:
    missing = ", ".join(name for name, value in zip(REQUIRED, found, strict=True) if not value)
    return Unreadable(f"the CloudEvent has no {missing}", hint=f"Every CloudEvent has {', '.join(REQUIRED)}.")
