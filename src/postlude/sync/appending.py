"""Appending and receiving without `await`, on handles that need none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack
from uuid import UUID

from postlude.core.at_once import at_once
from postlude.errors import ConfigurationError
from postlude.inbox.inbox import Inbox
from postlude.outbox.options import AppendOptions
from postlude.outbox.outbox import Handles, Outbox


class SyncOutbox:
    """`append` without `await`, on handles that need none."""

    def __init__(self, outbox: Outbox, handles: Handles) -> None:
        self._outbox = outbox
        self._handles = handles

    def append(self, tx: Any, event: object, **options: Unpack[AppendOptions]) -> UUID:
        """Append one event in the caller's transaction."""
        require_sync(self._handles, tx)
        return at_once(self._outbox.append(tx, event, **options))

    def append_many(self, tx: Any, events: Sequence[object]) -> list[UUID]:
        """Append events or `Message(event, **options)`, in order, in one statement."""
        require_sync(self._handles, tx)
        return at_once(self._outbox.append_many(tx, events))


class SyncInbox:
    """`once` without `await`."""

    def __init__(self, inbox: Inbox, handles: Handles) -> None:
        self._inbox = inbox
        self._handles = handles

    def once(self, tx: Any, consumer: str, event_id: UUID | str, *, source: str | None = None) -> bool:
        """True: this is the first time, so do it, in this transaction. False: it was done before."""
        require_sync(self._handles, tx)
        return at_once(self._inbox.once(tx, consumer, event_id, source=source))


def require_sync(handles: Handles, tx: Any) -> None:
    """Refuse what only an event loop could use."""
    if handles.adapter(tx).is_async:
        raise ConfigurationError(
            f"a handle of {type(tx).__module__.split('.')[0]} belongs to an event loop",
            hint="Await the same method of app instead of calling app.sync.",
        )
