"""What an operator sees of requests and calls, and the one thing that can be done: requeue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias
from uuid import UUID

from postlude.core.calls import Call, CallOperation, is_text, subject_id_text
from postlude.core.lifecycle import Status
from postlude.erasure.views import ErasureView, SubjectStory, call_of, requeued, view_of
from postlude.errors import ConfigurationError, InvalidId
from postlude.ports.calls import Calls

MOST = 10_000
# `list` is a method, so its type is named here.
CallList: TypeAlias = list[Call]
Requests: TypeAlias = list[ErasureView]


class Oversight:
    def __init__(
        self,
        calls: Callable[[], Calls],
        pseudonym_of: Callable[[str], Awaitable[str]],
        start: Callable[[], Awaitable[None]],
    ) -> None:
        self._get_calls = calls
        self._hashed = pseudonym_of
        self._start = start

    async def list(self, *, limit: int = 100, after: UUID | str | None = None) -> Requests:
        """Requests, the newest first; `after` is the id where the last page ended."""
        calls = await self._opened()
        where = None if after is None else _id(after)
        found = await calls.groups(subject=None, is_overdue=False, limit=_limit(limit), after=where)
        return [view_of(one) for one in found]

    async def show(self, subject_id: Any, *, is_pseudonym: bool = False) -> SubjectStory:
        """Every request about a subject and its open calls; nothing of it is an error."""
        calls = await self._opened()
        given = subject_id_text(subject_id)
        subject = given if is_pseudonym else await self._hashed(given)
        groups = await calls.groups(subject=subject, is_overdue=False, limit=MOST)
        stored = await calls.calls(subject=subject, limit=MOST)
        return SubjectStory(
            subject=subject, requests=[view_of(one) for one in groups], calls=[call_of(one) for one in stored]
        )

    async def list_abandoned(self, limit: int = 100) -> CallList:
        """Calls that nobody makes any more, the oldest first. Their ids are what `requeue` takes."""
        return await self._with_status(Status.dead, limit)

    async def list_scheduled(self, limit: int = 100) -> CallList:
        """Calls that wait for a vendor's horizon, the nearest first."""
        return await self._with_status(Status.scheduled, limit)

    async def overdue(self, limit: int = 100) -> Requests:
        """Requests past their deadline, the longest first."""
        calls = await self._opened()
        return [view_of(one) for one in await calls.groups(subject=None, is_overdue=True, limit=_limit(limit))]

    async def status_counts(self) -> dict[str, int]:
        """Calls by status and outcome, each with its number, be it zero."""
        found = await (await self._opened()).counts()
        return {str(status): found.get(status, 0) for status in Status}

    async def gauges(self) -> dict[str, int]:
        """By the names of their metrics."""
        requests, calls = await (await self._opened()).overdue_counts()
        return {"postlude_erasures_overdue": requests, "postlude_calls_overdue": calls}

    async def requeue(self, ids: Iterable[UUID | str] | UUID, *, actor: str, reason: str) -> CallList:
        """Have abandoned erasures tried again, with a fresh budget and the same idempotency key. What is not
        abandoned is skipped. A rectification is refused before anything changes: its corrections are gone."""
        if not (is_text(actor) and actor.strip() and is_text(reason) and reason.strip()):
            raise ConfigurationError(
                "a requeue needs an actor and a reason, as text", hint="They stand in the audit record."
            )
        wanted = [_id(one) for one in ([ids] if isinstance(ids, UUID | str) else ids)]
        calls = await self._opened()
        known = await calls.calls(status=Status.dead, ids=wanted, limit=len(wanted) + 1)
        if lost := [str(one.entry_id) for one in known if one.operation is CallOperation.rectify]:
            raise ConfigurationError(
                f"a rectification cannot be requeued, its corrections are gone: {', '.join(lost)}",
                hint="Call rectify_subject again with the corrections.",
            )
        changed = await calls.requeue(wanted, actor=actor, reason=reason)
        # A worker may have made some of them by now: they are gone, and were requeued all the same.
        seen = {one.entry_id: requeued(one) for one in known}
        seen |= {one.entry_id: one for one in await calls.calls(ids=changed, limit=len(changed) + 1)}
        return [call_of(seen[one]) for one in changed if one in seen]

    async def _with_status(self, status: Status, limit: int) -> CallList:
        calls = await self._opened()
        return [call_of(one) for one in await calls.calls(status=status, limit=_limit(limit))]

    async def _opened(self) -> Calls:
        await self._start()
        return self._get_calls()


def _limit(given: int) -> int:
    if not 1 <= given <= MOST:
        raise ConfigurationError(f"a limit lies between 1 and {MOST}, not {given}")
    return given


def _id(given: UUID | str) -> UUID:
    try:
        return given if isinstance(given, UUID) else UUID(given)
    except ValueError as error:
        raise InvalidId(f"{given!r} is not a UUID") from error
