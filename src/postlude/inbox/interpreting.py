"""What a message means to a consumer: an event and where it goes, nothing at all, or something nobody can read."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from postlude.core.codec import digest
from postlude.core.delivery import NORMAL
from postlude.core.envelope import TRACEPARENT, traceparent
from postlude.core.event import EventSpec, as_key
from postlude.core.identity import identity
from postlude.core.incoming import Incoming, read_message
from postlude.core.lanes import lane_of
from postlude.core.sealed import shape_of
from postlude.core.sealing import HEADER
from postlude.core.upcast import decode_event
from postlude.core.uuid7 import time_of
from postlude.errors import BeyondWindow, ConfigurationError, PayloadTooLarge, UnknownEvent, Unreadable
from postlude.inbox.consumers import Consumer, Interest
from postlude.outbox.installed import Installed
from postlude.outbox.prepare import Message, Preparing, require_past
from postlude.ports.append import Prepared, Route
from postlude.ports.broker import Received

log = logging.getLogger("postlude.consumer")

KNOWN_TYPES = 10_000
"""That are remembered: others choose the names of types, and may never repeat one."""

Mapped = Callable[[Received], Any]
"""Makes an event, or a `Message`, of something that is no CloudEvent; None: it is to be ignored."""


Position = Callable[[Received], str | None]
"""Where a message stands in its broker."""


class InterpretingParts(msgspec.Struct, frozen=True):
    """What the consumers of a database share."""

    installed: Installed
    preparing: Preparing
    foreign: Mapping[tuple[str, str], Mapped]
    """By broker and topic."""
    max_bytes: int


class Interpreting:
    def __init__(self, consumer: Consumer, parts: InterpretingParts, unknown: Literal["ignore", "dead"]) -> None:
        self._consumer = consumer
        self._parts = parts
        self._unknown = unknown
        self._wanting: dict[tuple[str, str], list[Interest]] = {}

    def one(self, received: Received, position: Position, oldest: datetime | None) -> Prepared | None:
        """None: nobody wants it. Raises a PostludeError when nobody can tell, or when it is older than the inbox
        remembers."""
        size, limit = len(received.payload), self._parts.max_bytes
        if size > limit:
            raise PayloadTooLarge(f"the message has {size} bytes; payload.max_bytes is {limit}")
        mapped = self._parts.foreign.get((self._consumer.broker, received.topic))
        if mapped is not None:
            return self._foreign(received, mapped, position)
        incoming = read_message(received.key, received.payload, received.headers)
        wanting = self._wanted(received.topic, incoming.type)
        if not wanting:
            return None
        require_past(incoming.event_id)
        if oldest is not None and (_sent_at(incoming) or oldest) < oldest:
            raise BeyondWindow(f"the message is older than the inbox of {self._consumer.name} remembers")
        return self._prepared(received.topic, incoming, wanting)

    def _wanted(self, topic: str, event_type: str) -> list[Interest]:
        wanting = self._wanting.get((topic, event_type))
        if wanting is None:
            if len(self._wanting) >= KNOWN_TYPES:
                self._wanting.clear()
            wanting = self._wanting[topic, event_type] = self._consumer.wanting(topic, event_type)
            if not wanting and self._unknown == "ignore":
                log.info("%s ignores %s from %s: it has no handler for it", self._consumer.name, event_type, topic)
        if not wanting and self._unknown == "dead":
            raise UnknownEvent(
                f"{self._consumer.name} has no handler for {event_type} from {topic}",
                hint="Add @app.on(...) for it and requeue, or set consumer.unknown to ignore.",
            )
        return wanting

    def _prepared(self, topic: str, incoming: Incoming, wanting: Sequence[Interest]) -> Prepared:
        specs = list(dict.fromkeys(one.spec for one in wanting))
        key, subjects = self._looked_up(specs, incoming)
        lane = lane_of(key, incoming.event_id, self._parts.installed.lanes)
        version, content_type, payload = incoming.version, incoming.content_type, incoming.payload
        trace = traceparent(incoming.headers.get(TRACEPARENT), None, int.from_bytes(os.urandom(24), "big"))
        return Prepared(
            event_id=incoming.event_id,
            type=incoming.type,
            version=version,
            source=incoming.source,
            entity=incoming.entity,
            key=key,
            topic=topic,
            content_type=content_type,
            payload=payload,
            digest=digest(incoming.type, version, content_type, key, payload),
            headers=msgspec.json.encode({**incoming.headers, TRACEPARENT: trace}).decode(),
            correlation_id=incoming.correlation_id or str(incoming.event_id),
            causation_id=incoming.causation_id,
            saga_id=None,
            subjects=subjects,
            priority=NORMAL,
            max_attempts=None,
            available_at=None,
            routes=tuple(Route(interest.destination, lane, key) for interest in wanting),
            seals=_sealing(specs, incoming),
        )

    def _looked_up(self, specs: Sequence[EventSpec], incoming: Incoming) -> tuple[str | None, tuple[str, ...]]:
        """Key and subjects, the latter of every class that reads it. Only what the message does not say is looked for in
        its payload, which is not free."""
        key, subjects = incoming.key, dict[str, None]()
        for spec in specs:
            if HEADER in incoming.headers or (not spec.subjects and (key is not None or spec.key is None)):
                continue  # what is sealed is looked into when it is stored
            try:
                event = decode_event(spec, incoming.version, incoming.payload)
            except Exception:  # noqa: BLE001, S112 - its handler meets the same error, and makes a dead letter of it
                continue
            key = spec.key_of(event) if key is None and spec is specs[0] else key
            try:
                subjects |= dict.fromkeys(spec.subjects_of(event))
            except ConfigurationError as error:
                raise Unreadable(error.args[0]) from error
        return key, tuple(subjects)

    def _foreign(self, received: Received, mapped: Mapped, position: Position) -> Prepared | None:
        try:
            found = mapped(received)
        except Exception as error:
            raise Unreadable(
                f"the mapping of {received.topic} failed with {type(error).__name__}",
                hint="Mend the function that app.foreign decorates, then requeue.",
            ) from error
        if found is None:
            return None
        message = found if isinstance(found, Message) else Message(found)
        return self._made(received, message, position)

    def _made(self, received: Received, message: Message, position: Position) -> Prepared | None:
        given = position(received) if message.id is None else message.id
        if given is None:
            raise Unreadable(
                f"a message from {received.topic} has no identity",
                hint="Return Message(event, id=...) from the mapping: this broker does not number its messages.",
            )
        key = message.key if message.key is not None else received.key
        known = msgspec.structs.replace(message, id=identity(given, received.topic), key=key and as_key(key))
        prepared = self._parts.preparing.recorded(known)
        wanting = self._wanted(received.topic, prepared.type)
        if not wanting:
            return None
        lane = lane_of(prepared.key, prepared.event_id, self._parts.installed.lanes)
        routes = tuple(Route(interest.destination, lane, prepared.key) for interest in wanting)
        return msgspec.structs.replace(prepared, topic=received.topic, source=received.topic, routes=routes)


def _sealing(specs: Sequence[EventSpec], incoming: Incoming) -> EventSpec | None:
    """The class that says what of a message is sealed: the first that has something to seal."""
    return next((one for one in specs if shape_of(one) is not None), specs[0] if HEADER in incoming.headers else None)


def _sent_at(incoming: Incoming) -> datetime | None:
    moment = incoming.sent_at or time_of(incoming.event_id)
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
