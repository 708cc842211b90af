"""Sagas without `await`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from postlude.core.at_once import at_once
from postlude.outbox.outbox import Handles
from postlude.saga.compiled import Declared
from postlude.saga.service import SagaService
from postlude.saga.view import SagaView
from postlude.sync.appending import require_sync
from postlude.sync.own_loop import OwnLoop


class SyncSagas:
    """Without `await`: `start` and `signal` in the caller's transaction, the rest in an event loop of its own."""

    def __init__(self, sagas: SagaService, handles: Handles, loop: OwnLoop) -> None:
        self._sagas = sagas
        self._handles = handles
        self._loop = loop

    def start(self, tx: Any, saga: Declared, given: object, *, id: Any = None) -> UUID:
        """Begin a run in the caller's transaction."""
        require_sync(self._handles, tx)
        return at_once(self._sagas.start(tx, saga, given, id=id))

    def signal(self, tx: Any, saga_id: UUID | str, event: object) -> UUID:
        """Append an event that the saga waits for, in the caller's transaction."""
        require_sync(self._handles, tx)
        return at_once(self._sagas.signal(tx, saga_id, event))

    def get(self, saga_id: UUID | str) -> SagaView:
        """Where it stands, with its history."""
        return self._loop.finish(lambda: self._sagas.get(saga_id))

    def wait(self, saga_id: UUID | str, timeout: float | None = None) -> SagaView:
        """Until it has ended or is stuck; some worker has to drive it meanwhile. Raises TimeoutError."""
        return self._loop.finish(lambda: self._sagas.wait(saga_id, timeout))

    def retry(self, saga_id: UUID | str, *, step: str | None = None, actor: str, reason: str) -> SagaView:
        """Begin again what failed; a named step also when it runs and nothing is heard of it."""
        return self._loop.finish(lambda: self._sagas.retry(saga_id, step=step, actor=actor, reason=reason))

    def skip(
        self, saga_id: UUID | str, *, value: object = None, step: str | None = None, actor: str, reason: str
    ) -> SagaView:
        """Take a step for done with this value, or its undo for done."""
        return self._loop.finish(lambda: self._sagas.skip(saga_id, value=value, step=step, actor=actor, reason=reason))

    def compensate(self, saga_id: UUID | str, *, step: str | None = None, actor: str, reason: str) -> SagaView:
        """Go back: before the pivot, and wherever the saga is stuck on its way forward."""
        return self._loop.finish(lambda: self._sagas.compensate(saga_id, step=step, actor=actor, reason=reason))

    def cancel(self, saga_id: UUID | str, *, step: str | None = None, actor: str, reason: str) -> SagaView:
        """Go back; refused from the pivot on."""
        return self._loop.finish(lambda: self._sagas.cancel(saga_id, step=step, actor=actor, reason=reason))
