"""Sealed events, opened for those who handle them here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from postlude.core.delivery import StoredEvent
from postlude.core.sealing import HEADER
from postlude.errors import CannotOpen

Open = Callable[[Sequence[StoredEvent]], Awaitable[list[StoredEvent | CannotOpen]]]


async def plain(event: StoredEvent, open: Open) -> StoredEvent:
    """Raises CannotOpen."""
    if HEADER not in event.headers:
        return event
    (found,) = await open([event])
    if isinstance(found, CannotOpen):
        raise found
    return found
