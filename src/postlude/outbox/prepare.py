"""From an event and options to rows: everything is checked and decided here, before anything is executed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from postlude.core.codec import CONTENT_TYPE, digest, encode
from postlude.core.delivery import PRIORITIES
from postlude.core.envelope import TRACEPARENT, check_headers, traceparent
from postlude.core.event import TEXT, EventSpec, as_key, spec_of, subject_text
from postlude.core.sealed import shape_of
from postlude.core.undeclared import require_declared
from postlude.core.uuid7 import time_of, uuid7
from postlude.errors import (
    ConfigurationError,
    InvalidId,
    InvalidKey,
    NaiveDatetime,
    NotEncodable,
    PayloadTooLarge,
    Unroutable,
)
from postlude.outbox import current
from postlude.outbox.installed import Installed
from postlude.outbox.routes import Routes
from postlude.ports.append import Prepared

Priority = Literal["high", "normal", "low"]
MAX_AHEAD = timedelta(hours=24)


class _Bare(msgspec.Struct, frozen=True):
    """The one field that may be given by position; a Struct because one is made for every append."""

    event: Any


class Message(_Bare, frozen=True, kw_only=True):
    """An event with options, for `append_many`."""

    id: UUID | str | None = None
    key: str | None = None
    topic: str | None = None
    headers: Mapping[str, str] | None = None
    priority: Priority = "normal"
    available_at: datetime | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    causation_id: UUID | None = None
    subjects: Sequence[str] | None = None
    optimistic: bool | None = None


class Preparing:
    """Turns events into prepared rows for one app."""

    def __init__(self, routes: Routes, installed: Installed, *, source: str, max_bytes: int) -> None:
        self._routes = routes
        self._installed = installed
        self._source = source
        self._max_bytes = max_bytes

    @property
    def lanes(self) -> int:
        return self._installed.lanes

    def one(self, message: Message) -> Prepared:
        """An append. Somebody must receive it."""
        prepared = self.recorded(message)
        if not prepared.routes and not spec_of(message.event).record_only:
            raise Unroutable(f"nobody receives {prepared.type}: there is no route and no handler for it")
        return prepared

    def recorded(self, message: Message) -> Prepared:
        event = message.event
        spec = spec_of(event)
        self._routes.know(spec)
        key = spec.key_of(event) if message.key is None else as_key(message.key)
        if message.priority not in PRIORITIES:
            raise ConfigurationError(f"priority is high, normal or low, not {message.priority!r}")
        payload = encode(event)
        require_declared(spec, event)
        if len(payload) > self._max_bytes:
            raise PayloadTooLarge(f"{spec.type} has {len(payload)} bytes; payload.max_bytes is {self._max_bytes}")
        event_id = _id(message.id)
        return self._prepared(message, spec, key, payload, event_id)

    def _prepared(self, message: Message, spec: EventSpec, key: str | None, payload: bytes, event_id: UUID) -> Prepared:
        cause = current.cause()
        routes = self._routes.resolve(spec, message.event, event_id, key, self._installed.lanes)
        if message.priority != "normal" and (key is not None or any(route.key is not None for route in routes)):
            raise InvalidKey(
                f"{spec.type} has a key, so it cannot have priority {message.priority!r}",
                hint="A key means order and a priority would break it: use one or the other.",
            )
        subjects = spec.subjects_of(message.event) if message.subjects is None else _subjects(message.subjects)
        _require_storable("a topic", message.topic)
        _require_storable("a correlation id", message.correlation_id)
        return Prepared(
            event_id=event_id,
            type=spec.type,
            version=spec.version,
            source=self._source,
            entity=spec.entity_of(key),
            key=key,
            topic=message.topic or spec.topic,
            content_type=CONTENT_TYPE,
            payload=payload,
            digest=digest(spec.type, spec.version, CONTENT_TYPE, key, payload),
            headers=_headers(message.headers, cause),
            correlation_id=message.correlation_id or (str(event_id) if cause is None else cause.correlation_id),
            causation_id=message.causation_id or (None if cause is None else cause.event_id),
            saga_id=None if cause is None else cause.saga_id,
            subjects=subjects,
            priority=PRIORITIES[message.priority],
            max_attempts=_attempts(message.max_attempts),
            available_at=_aware(message.available_at),
            routes=routes,
            seals=None if shape_of(spec) is None else spec,
        )


def new_id() -> UUID:
    return uuid7(time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big"))


def _id(given: UUID | str | None) -> UUID:
    if given is None:
        return new_id()
    if isinstance(given, str):
        try:
            given = UUID(given)
        except ValueError as error:
            raise InvalidId(f"{given!r} is not a UUID") from error
    if not isinstance(given, UUID):
        raise InvalidId(f"an id is a UUID, not {type(given).__name__}")
    require_past(given)
    return given


def require_past(given: UUID) -> None:
    made = time_of(given)
    if made is not None and made > datetime.now(UTC) + MAX_AHEAD:
        raise InvalidId(
            f"the id {given} claims to be made on {made:%Y-%m-%d}",
            hint="A UUIDv7 more than a day ahead would fall into a partition that is being made: correct the clock.",
        )


def _headers(given: Mapping[str, str] | None, cause: current.Cause | None) -> str:
    headers = check_headers(given)
    parent = None if cause is None else cause.traceparent
    headers[TRACEPARENT] = traceparent(headers.get(TRACEPARENT), parent, int.from_bytes(os.urandom(24), "big"))
    return msgspec.json.encode(headers).decode()


def _subjects(given: Sequence[str]) -> tuple[str, ...]:
    """As declared ones: what could not be asked for by this id could never be redacted."""
    if isinstance(given, str):
        raise ConfigurationError("subjects are several ids, not one text", hint="Give subjects=[id].")
    return tuple(dict.fromkeys(map(subject_text, given)))


def _require_storable(what: str, text: str | None) -> None:
    if text is not None and not TEXT.fullmatch(text):
        raise NotEncodable(f"{what} has a NUL or a lone surrogate", hint="No database can hold it.")


def _attempts(given: int | None) -> int | None:
    if given is not None and given < 1:
        raise ConfigurationError(f"max_attempts must be at least 1, not {given}")
    return given


def _aware(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise NaiveDatetime(f"available_at {moment.isoformat()} has no time zone")
    return moment.astimezone(UTC)
