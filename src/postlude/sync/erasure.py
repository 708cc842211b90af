"""Erasure and rectification without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict, Unpack
from uuid import UUID

from postlude.core.at_once import at_once
from postlude.core.calls import Correction, SubjectRef
from postlude.erasure.oversight import CallList, Requests
from postlude.erasure.service import ErasureService
from postlude.erasure.views import ErasureResult, SubjectStory
from postlude.outbox.outbox import Handles
from postlude.sync.appending import require_sync
from postlude.sync.own_loop import OwnLoop


class Why(TypedDict, total=False):
    """Who asks, and why: for the audit record."""

    reason: str | None
    actor: str


class SyncErasure:
    """Without `await`: requests in the caller's transaction, the rest in an event loop of its own."""

    def __init__(self, erasure: ErasureService, handles: Handles, loop: OwnLoop) -> None:
        self._erasure = erasure
        self._handles = handles
        self._loop = loop

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

    def list(self, *, limit: int = 100, after: UUID | str | None = None) -> Requests:
        """Requests, the newest first; `after` is the id where the last page ended."""
        return self._loop.finish(lambda: self._erasure.list(limit=limit, after=after))

    def show(self, subject_id: Any, *, is_pseudonym: bool = False) -> SubjectStory:
        """Every request about a subject and its open calls; nothing of it is an error."""
        return self._loop.finish(lambda: self._erasure.show(subject_id, is_pseudonym=is_pseudonym))

    def list_abandoned(self, limit: int = 100) -> CallList:
        """Calls that nobody makes any more, the oldest first. Their ids are what `requeue` takes."""
        return self._loop.finish(lambda: self._erasure.list_abandoned(limit))

    def list_scheduled(self, limit: int = 100) -> CallList:
        """Calls that wait for a vendor's horizon, the nearest first."""
        return self._loop.finish(lambda: self._erasure.list_scheduled(limit))

    def overdue(self, limit: int = 100) -> Requests:
        """Requests past their deadline, the longest first."""
        return self._loop.finish(lambda: self._erasure.overdue(limit))

    def status_counts(self) -> dict[str, int]:
        """Calls by status, all of them named."""
        return self._loop.finish(self._erasure.status_counts)

    def requeue(self, ids: Iterable[UUID | str] | UUID, *, actor: str, reason: str) -> CallList:
        """Have abandoned erasures tried again, with a fresh budget and the same idempotency key."""
        return self._loop.finish(lambda: self._erasure.requeue(ids, actor=actor, reason=reason))

    def pseudonym(self, subject_id: Any) -> str:
        """What stands for a subject in the audit trail and in `ErasureCompleted`."""
        return self._loop.finish(lambda: self._erasure.pseudonym(subject_id))
