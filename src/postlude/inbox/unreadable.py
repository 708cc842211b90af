"""Messages that could not be taken: kept in the log as they came, on their way to becoming a dead letter."""

from __future__ import annotations

from hashlib import sha256
from uuid import uuid5

import msgspec

from postlude.core.codec import digest
from postlude.core.delivery import NORMAL, StoredEvent
from postlude.core.event import Event, event, spec_of
from postlude.core.identity import FOREIGN
from postlude.core.lanes import lane_of
from postlude.core.outcome import Fault
from postlude.core.sealed import has_sealed_parts
from postlude.core.sealing import HEADER
from postlude.errors import (
    BeyondWindow,
    IdConflict,
    InvalidId,
    PayloadTooLarge,
    PostludeError,
    UnknownEvent,
    Unreadable,
)
from postlude.inbox.consumers import Consumer
from postlude.ports.append import Prepared, Route
from postlude.ports.broker import Received

TYPE = "postlude.unreadable"
BYTES = "application/octet-stream"
KIND, CODE, REASON = "postlude-error", "postlude-code", "postlude-reason"
KEY, POSITION, SEALED = "postlude-key", "postlude-position", "postlude-came-sealed"
"""Headers of our own beside those that came."""
TELLING = (BeyondWindow, IdConflict, InvalidId, PayloadTooLarge, UnknownEvent, Unreadable)
"""Errors whose sentences hold names and sizes, and nothing of what a message says of anybody."""


@event(type=TYPE, sealed=True, record_only=True)
class Kept(Event):
    """How it is stored where some class has sealed parts: nobody can tell what in it is personal."""


def as_it_came(
    received: Received, position: str | None, consumer: Consumer, error: PostludeError, lanes: int
) -> Prepared:
    """The same message gives the same event, however often it comes, and whatever is wrong with it by then."""
    topic = _text(received.topic)
    headers = {_text(name): _text(value) for name, value in received.headers.items()}
    if received.key is not None:
        headers[KEY] = _text(received.key)
    if position is not None:
        headers[POSITION] = _text(position)
    content = sha256(msgspec.json.encode((consumer.name, topic, headers), order="deterministic"))
    content.update(received.payload)
    if HEADER in headers:  # that of the message; what is sealed here has one of its own
        headers[SEALED] = headers.pop(HEADER)
    headers |= {KIND: type(error).__name__, CODE: error.code}
    if isinstance(error, TELLING):
        headers[REASON] = _text(str(error.args[0]))
    written = msgspec.json.encode(headers, order="deterministic")
    event_id = uuid5(FOREIGN, content.hexdigest())
    return Prepared(
        event_id=event_id,
        type=TYPE,
        version=1,
        source=topic,
        entity=None,
        key=None,
        topic=topic,
        content_type=BYTES,
        payload=received.payload,
        digest=digest(TYPE, 1, BYTES, None, received.payload),
        headers=written.decode(),
        correlation_id=str(event_id),
        causation_id=None,
        saga_id=None,
        subjects=(),
        priority=NORMAL,
        max_attempts=None,
        available_at=None,
        routes=(Route(consumer.destination, lane_of(None, event_id, lanes), None),),
        seals=spec_of(Kept) if any(has_sealed_parts(one.spec) for one in consumer.interests) else None,
    )


def received_of(event: StoredEvent) -> Received:
    """The message again, for another look at it."""
    ours = (KIND, CODE, REASON, KEY, POSITION, SEALED)
    headers = {name: value for name, value in event.headers.items() if name not in ours}
    if SEALED in event.headers:
        headers[HEADER] = event.headers[SEALED]
    return Received(event.topic, event.headers.get(KEY), event.payload, headers, place=None)


def position_of(event: StoredEvent) -> str | None:
    """Where it stood in its broker, which may be all that identifies it."""
    return event.headers.get(POSITION)


def fault_of(event: StoredEvent) -> Fault:
    """Why it could not be taken."""
    said = event.headers
    return Fault(said.get(KIND, "Unreadable"), said.get(CODE), at=event.topic, message=said.get(REASON))


def _text(value: str) -> str:
    """As a database can hold it: no NUL, no lone surrogate."""
    return value.replace("\0", "\\0").encode(errors="backslashreplace").decode()
