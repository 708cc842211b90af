"""What a handler is given besides its event."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Unpack
from uuid import UUID

import msgspec

from postlude.core.at_once import at_once
from postlude.core.delivery import StoredEvent
from postlude.outbox.options import AppendOptions
from postlude.outbox.outbox import Outbox
from postlude.outbox.prepare import new_id


class Task(msgspec.Struct, frozen=True):
    """What a saga says of a piece of its work."""

    key: str
    result: Any = None


class Context:
    """The event's surroundings, the transaction it is handled in, and a way to append more."""

    def __init__(
        self, event: StoredEvent, handler: str, attempt: int, tx: Any, outbox: Outbox, *, task: Task | None = None
    ) -> None:
        self.tx = tx
        self.event_id: UUID = event.event_id
        self.attempt = attempt
        self.idempotency_key = f"{event.event_id}:{handler}" if task is None else task.key
        self.correlation_id = event.correlation_id
        self.causation_id = event.causation_id
        self.saga_id = event.saga_id
        self.headers: Mapping[str, str] = event.headers
        self.result: Any = None if task is None else task.result
        """What the step returned that is to be undone; None when nobody knows."""
        self.collected: list[tuple[object, AppendOptions]] = []
        self._outbox = outbox

    async def append(self, event: object, **options: Unpack[AppendOptions]) -> UUID:
        """Append in the handler's transaction. A handler that calls out has none: its events are kept and appended
        when it is settled."""
        if self.tx is not None:
            return await self._outbox.append(self.tx, event, **options)
        if options.get("id") is None:
            options["id"] = new_id()
        self.collected.append((event, options))
        return UUID(str(options["id"]))


class SyncContext:
    """The same for a handler that runs in a thread: `append` waits for its result.

    `loop` is where the transaction's handle belongs to; None: the handle is a sync one and belongs to this thread.
    """

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop | None) -> None:
        self._context = context
        self._loop = loop

    def append(self, event: object, **options: Unpack[AppendOptions]) -> UUID:
        appending = self._context.append(event, **options)
        if self._loop is None:
            return at_once(appending)
        return asyncio.run_coroutine_threadsafe(appending, self._loop).result()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
