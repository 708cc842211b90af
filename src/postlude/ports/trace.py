"""The trace that the work at hand belongs to, for records that name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from postlude.core.envelope import is_traceparent

_traceparent: ContextVar[str | None] = ContextVar("postlude_traceparent", default=None)


def trace_id() -> str | None:
    """None: the work belongs to no trace that we know of."""
    parent = _traceparent.get()
    return parent.split("-")[1] if is_traceparent(parent) else None


@contextmanager
def tracing(traceparent: str | None) -> Iterator[None]:
    token = _traceparent.set(traceparent)
    try:
        yield
    finally:
        _traceparent.reset(token)
