"""Redaction of a data subject in our own tables: events, dead letters, the state and history of sagas."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, get_args
from uuid import UUID

import msgspec

from postlude.core.calls import subject_id_text
from postlude.core.pseudonym import pseudonym
from postlude.core.sqlstate import sqlstate_of
from postlude.core.statement import Script
from postlude.errors import ConfigurationError, DatabaseUnavailable
from postlude.outbox.outbox import Handles
from postlude.ports.redaction import FIRST, RedactedPage, RedactionScripts, Wanted

T = TypeVar("T")
Pending: TypeAlias = Literal["discard", "publish_first"]
APP, ASKED = "app", "the app asked for it"
"""Who acts and why, when an app does not say."""
PAGE = 500
TRIES = 8
SERIALISATION = frozenset({"40001", "40P01"})


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a redaction has done: events without their content, deliveries discarded, sagas without what they knew.
    `waits` are open deliveries and sagas that must finish first; redact again when they have."""

    subject: str
    """The pseudonym of the data subject."""
    events: int = 0
    deliveries: int = 0
    sagas: int = 0
    waits: int = 0

    @property
    def is_complete(self) -> bool:
        return not self.waits


class RedactingParts(msgspec.Struct, frozen=True):
    """What an engine gives."""

    scripts: RedactionScripts
    handles: Handles
    pseudonym_key: Callable[[], Awaitable[bytes]]
    transaction: Callable[[], AbstractAsyncContextManager[Any]]


class Redacting:
    """Of one database."""

    def __init__(self, parts: Callable[[], RedactingParts], start: Callable[[], Awaitable[None]]) -> None:
        self._get_parts = parts
        self._start = start

    async def redact(
        self, subject_id: Any, *, pending: Pending = "publish_first", actor: str = APP, reason: str = ASKED
    ) -> Redaction:
        """Take a data subject out of Postlude's own tables, page by page; whoever is killed meanwhile runs it again. What
        is still to be delivered is published first, or discarded; never published redacted. Sagas that have not ended are
        waited for."""
        if pending not in get_args(Pending):
            raise ConfigurationError(f"pending is discard or publish_first, not {pending!r}")
        if not actor.strip() or not reason.strip():
            raise ConfigurationError("a redaction needs an actor and a reason", hint="They stand in the audit record.")
        require_unnamed(subject_id_text(subject_id), actor, reason)
        return await self.run(subject_id, pending, actor=actor, reason=reason)

    async def run(self, subject_id: str, pending: Pending, *, actor: str, reason: str) -> Redaction:
        """The same, with words that are ours."""
        wanted = await self._wanted(subject_id, pending, actor, reason)
        pages = [one async for one in self._pages(wanted)]
        deliveries = frozenset[int]().union(*(page.waiting_deliveries for page in pages))
        sagas = frozenset[Any]().union(*(page.waiting_sagas for page in pages))
        return Redaction(
            subject=wanted.subject,
            events=sum(page.events for page in pages),
            deliveries=sum(page.deliveries for page in pages),
            sagas=sum(page.sagas for page in pages),
            waits=len(deliveries) + len(sagas),
        )

    async def drop_key(self, subject_id: Any, *, actor: str, reason: str) -> bool:
        """Of a subject that is redacted: what its own key has sealed elsewhere cannot be opened any more."""
        wanted = await self._wanted(subject_id, "publish_first", actor, reason)
        return await self._play(partial(self._get_parts().scripts.shred, wanted))

    async def _pages(self, wanted: Wanted) -> AsyncIterator[RedactedPage]:
        scripts = self._get_parts().scripts
        for each in (
            scripts.events,
            scripts.remembered,
        ):  # in this order: retention turns events into what is remembered
            last: UUID | None = FIRST
            while last is not None:
                page = await self._play(partial(each, wanted, after=last, limit=PAGE))
                yield page
                last = page.last
        while True:
            page = await self._play(partial(scripts.sagas, wanted, limit=PAGE))
            yield page
            if not page.sagas:
                break
        yield await self._play(partial(scripts.rectifications, wanted))

    async def _wanted(self, subject_id: Any, pending: str, actor: str, reason: str) -> Wanted:
        text = subject_id_text(subject_id)
        await self._start()
        subject = pseudonym(await self._get_parts().pseudonym_key(), text)
        return Wanted(subject_id=text, subject=subject, discards=pending == "discard", actor=actor, reason=reason)

    async def _play(self, script: Callable[[], Script[T]]) -> T:
        parts = self._get_parts()
        for _ in range(TRIES):
            try:
                async with parts.transaction() as handle:
                    return await parts.handles.adapter(handle).play(handle, script())
            except Exception as error:
                if sqlstate_of(error) not in SERIALISATION:
                    raise
        raise DatabaseUnavailable("others keep changing what is to be redacted", hint="Run it again.")


def require_unnamed(subject_id: str, *words: str) -> None:
    """Audit records are kept for good: none of them may say who."""
    if any(re.search(rf"(?<!\w){re.escape(subject_id)}(?!\w)", text) for text in words):
        raise ConfigurationError(
            "the actor or the reason names the subject, and the audit record would keep it",
            hint="Say why without saying who, as in: request 17 of 3 May.",
        )
