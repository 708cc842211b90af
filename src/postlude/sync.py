"""The same names for code without an event loop: scripts, Flask, Django, threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypedDict, TypeVar, Unpack
from uuid import UUID

import msgspec

from postlude.core.at_once import at_once
from postlude.core.calls import Correction, SubjectRef
from postlude.erasure.service import ErasureService
from postlude.erasure.views import ErasureResult
from postlude.errors import ConfigurationError
from postlude.inbox.inbox import Inbox
from postlude.outbox.options import AppendOptions
from postlude.outbox.outbox import Handles, Outbox
from postlude.saga.compiled import Declared
from postlude.saga.service import SagaService

T = TypeVar("T")


class Why(TypedDict, total=False):
    """Who asks, and why: for the audit record."""

    reason: str | None
    actor: str


class Life(Protocol):
    """What has to be started, can work off what is due, and is closed again."""

    @property
    def is_started(self) -> bool: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def run_once(self, limit: int | None = None) -> int: ...
    async def drain(self, timeout: float = 30) -> int: ...


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


class SyncSagas:
    """`start` and `signal` without `await`."""

    def __init__(self, sagas: SagaService, handles: Handles) -> None:
        self._sagas = sagas
        self._handles = handles

    def start(self, tx: Any, saga: Declared, given: object, *, id: Any = None) -> UUID:
        """Begin a run in the caller's transaction."""
        require_sync(self._handles, tx)
        return at_once(self._sagas.start(tx, saga, given, id=id))

    def signal(self, tx: Any, saga_id: UUID | str, event: object) -> UUID:
        """Append an event that the saga waits for, in the caller's transaction."""
        require_sync(self._handles, tx)
        return at_once(self._sagas.signal(tx, saga_id, event))


class SyncErasure:
    """`erase_subject` and `rectify_subject` without `await`."""

    def __init__(self, erasure: ErasureService, handles: Handles) -> None:
        self._erasure = erasure
        self._handles = handles

    def erase_subject(
        self, session: Any, subject_id: Any, refs: Sequence[SubjectRef] = (), **why: Unpack[Why]
    ) -> ErasureResult:
        """Erase a subject in the caller's transaction, and append the calls that erase it everywhere else."""
        require_sync(self._handles, session)
        return at_once(self._erasure.erase_subject(session, subject_id, refs, **why))

    def rectify_subject(
        self,
        session: Any,
        subject_id: Any,
        corrections: Sequence[Correction],
        refs: Sequence[SubjectRef] = (),
        **why: Unpack[Why],
    ) -> ErasureResult:
        """Correct a subject's data in the caller's transaction, and append the calls that correct it elsewhere."""
        require_sync(self._handles, session)
        return at_once(self._erasure.rectify_subject(session, subject_id, corrections, refs, **why))


class SyncSides(msgspec.Struct, frozen=True):
    """What is there without an event loop."""

    outbox: SyncOutbox
    inbox: SyncInbox
    sagas: SyncSagas
    erasure: SyncErasure


def require_sync(handles: Handles, tx: Any) -> None:
    """Refuse what only an event loop could use."""
    if handles.adapter(tx).is_async:
        raise ConfigurationError(
            f"a handle of {type(tx).__module__.split('.')[0]} belongs to an event loop",
            hint="Await the same method of app instead of calling app.sync.",
        )


class Sync:
    """Of one database."""

    def __init__(
        self,
        sides: SyncSides,
        handles: Handles,
        life: Life,
        *,
        open_own: Callable[[], AbstractContextManager[Any]],
        appended: Callable[[], None],
    ) -> None:
        self.outbox = sides.outbox
        self.inbox = sides.inbox
        self.sagas = sides.sagas
        self.erasure = sides.erasure
        self._appended = appended
        self._handles = handles
        self._life = life
        self._open_own = open_own
        self._looked = False

    def start(self) -> None:
        """Check the schema, and make it in an SQLite file that has none; `transaction()` does so by itself."""
        if not self._looked and not self._life.is_started:
            self._finish(self._life.start)
        self._looked = True

    @contextmanager
    def transaction(self, handle: Any = None) -> Iterator[Any]:
        """Open a transaction of our own, or adopt the caller's handle as it is."""
        if handle is not None:
            self._handles.adapter(handle).require_transaction(handle)
            yield handle
            return
        self.start()
        with self._open_own() as opened:
            yield opened
        self._appended()

    def run_once(self, limit: int | None = None) -> int:
        """One pass over what is due; gives the deliveries settled."""
        return self._finish(lambda: self._life.run_once(limit))

    def drain(self, timeout: float = 30) -> int:
        """Until nothing is due, or the time is over; gives the deliveries settled."""
        return self._finish(lambda: self._life.drain(timeout))

    def _finish(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """In an event loop that lasts just as long, and leaves no connection behind."""
        if self._life.is_started:
            raise ConfigurationError(
                "this app runs in an event loop already", hint="Use the methods of app there, with await."
            )

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise ConfigurationError(
                "app.sync was called from inside an event loop", hint="Await the same method of app instead."
            )

        async def inside() -> T:
            try:
                return await work()
            finally:
                await self._life.close()

        return asyncio.run(inside())
