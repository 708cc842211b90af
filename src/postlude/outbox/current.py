"""What is being handled right now, so that events appended meanwhile know their cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.core.envelope import TRACEPARENT
from postlude.ports.trace import tracing


class Cause(msgspec.Struct, frozen=True):
    """The event that is being handled."""

    event_id: UUID
    correlation_id: str
    traceparent: str | None
    saga_id: UUID | None


_cause: ContextVar[Cause | None] = ContextVar("postlude_cause", default=None)


def cause() -> Cause | None:
    return _cause.get()


@contextmanager
def handling(event: StoredEvent) -> Iterator[None]:
    parent = event.headers.get(TRACEPARENT)
    token = _cause.set(Cause(event.event_id, event.correlation_id, parent, event.saga_id))
    try:
        with tracing(parent):
            yield
    finally:
        _cause.reset(token)
