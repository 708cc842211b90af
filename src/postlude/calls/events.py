"""The events of calls: what is to be done, without a word about whom, and that everything is done."""

from __future__ import annotations

from uuid import UUID

from postlude.core.calls import CallOperation
from postlude.core.event import Event, event


@event(type="postlude.erase", topic="postlude.calls", record_only=True)
class EraseCall(Event):
    """A resolver is to erase a subject."""

    resolver: str
    group: UUID


@event(type="postlude.rectify", topic="postlude.calls", record_only=True)
class RectifyCall(Event):
    """A resolver is to correct what it knows of a subject."""

    resolver: str
    group: UUID


@event(type="postlude.erasure.completed", record_only=True)
class ErasureCompleted(Event):
    """A subject is gone everywhere, but for calls that were given up: `discarded`. `subject` is its pseudonym."""

    group: UUID
    subject: str
    generation: int
    calls: int
    discarded: int


@event(type="postlude.rectification.completed", record_only=True)
class RectificationCompleted(Event):
    """A subject's data is corrected everywhere, but for calls that were given up. `subject` is its pseudonym."""

    group: UUID
    subject: str
    generation: int
    calls: int
    discarded: int


CALLS: dict[CallOperation, type[EraseCall | RectifyCall]] = {
    CallOperation.erase: EraseCall,
    CallOperation.rectify: RectifyCall,
}
COMPLETIONS: dict[CallOperation, type[ErasureCompleted | RectificationCompleted]] = {
    CallOperation.erase: ErasureCompleted,
    CallOperation.rectify: RectificationCompleted,
}
