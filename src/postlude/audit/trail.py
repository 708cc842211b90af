"""The audit trail for people and programs: look, verify, copy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from uuid import UUID

import msgspec

from postlude.audit.callable_sink import Take, sink_of
from postlude.audit.copies import Copy
from postlude.audit.report import AuditReport
from postlude.audit.shipping import Shipping
from postlude.core.audit_chain import AuditRecord
from postlude.core.audit_verify import Verifier
from postlude.core.calls import subject_id_text
from postlude.core.pseudonym import TARGET, pseudonym
from postlude.core.sqlstate import sqlstate_of
from postlude.errors import AuditBroken, ConfigurationError, NaiveDatetime
from postlude.ports.audit import AuditSink, AuditTrail, Place, Which

PAGE = 1000
LOWEST = -(2**63)
"""Before every position that a database can hold: whoever may insert may put a link before the first one."""
WINDOW = 5.0
"""Seconds within which a record is linked, when all is well."""
NOT_ALLOWED = "42501"
"""SQLSTATE: this user lacks a privilege, as a viewer should."""


class Audit:
    """Who did what, when and why, and whether anybody changed what is written."""

    def __init__(self, trail: Callable[[], AuditTrail], start: Callable[[], Awaitable[None]]) -> None:
        self._opened = trail
        self._start = start
        self._sinks: dict[str, AuditSink] = {}

    @property
    def sinks(self) -> dict[str, AuditSink]:
        """By name."""
        return dict(self._sinks)

    def add_sink(self, sink: AuditSink | Take, *, name: str) -> None:
        """Have the chain copied there by the worker, in order, from its beginning. Keep the name: under it the
        database notes how far the sink is."""
        if not name.strip() or name in self._sinks:
            raise ConfigurationError(f"an audit sink cannot be named {name!r}", hint="Give each a name of its own.")
        self._sinks[name] = sink_of(sink)

    async def list(
        self,
        *,
        target: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        subject: str | int | UUID | None = None,
        limit: int = 100,
        after: UUID | None = None,
    ) -> Sequence[AuditRecord]:
        """Newest first, after the record of that id. `subject` is a data subject's own id."""
        if subject is not None and target is not None:
            raise ConfigurationError("a subject is a target too", hint="Give one of the two.")
        if limit < 1:
            raise ConfigurationError(f"a limit is at least 1, not {limit}")
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and moment.utcoffset() is None:
                raise NaiveDatetime(f"{name} {moment.isoformat()} has no time zone")
        trail = await self._trail()
        if subject is not None:
            target = TARGET + pseudonym(await _key_for_subjects(trail), subject_id_text(subject))
        which = Which(target=target, actor=actor, action=action, since=since, until=until)
        return await trail.records(which, limit=limit, after=after)

    async def link(self) -> int:
        """Link everything that is not linked yet; workers do so every second."""
        trail, place, count = await self._trail(), None, 0
        while True:
            found = await trail.look(place, PAGE)
            if found.unlinked:
                count += len(await trail.link(found.unlinked))
            if (place := found.following) is None:
                return count

    async def ship(self) -> int:
        """Link everything and hand every sink what it lacks; workers do so every second. Gives the records linked.
        Raises SinkUnavailable when one does not take them."""
        linked, shipping = await self.link(), Shipping(await self._trail())
        for name, sink in self._sinks.items():
            while await shipping.ship(name, sink, PAGE):
                pass
        return linked

    async def verify(self, copy: str | Path | None = None) -> AuditReport:
        """Link what is not linked, then read the whole chain; with `copy`, the file of a file sink, beside it."""
        trail, linked = await self._trail(), await self.link_if_allowed()
        verifier = Verifier()
        async with AsyncExitStack() as stack:
            compared = await stack.enter_async_context(Copy(copy, verifier.found)) if copy is not None else None
            head = await self._walk(trail, verifier, compared)
        verifier.end(head)
        if linked is None:
            await self._tell_unlinked(trail, verifier)
        return AuditReport(
            ok=verifier.found.count == 0,
            records=verifier.records,
            links=verifier.links,
            position=verifier.position,
            hash=verifier.hash.hex(),
            linked=linked,
            copied=compared.check.records if compared else None,
            found=verifier.found.count,
            problems=tuple(verifier.found.problems),
        )

    async def export(self, *, after: int = 0) -> AsyncIterator[AuditRecord]:
        """Linked records in the order of the chain, above a position. A record that is missing leaves a gap."""
        trail = await self._trail()
        while page := await trail.page_of_chain(after, PAGE):
            for link, record in page:
                if record is not None:
                    yield msgspec.structs.replace(record, position=link.position, hash=link.hash.hex())
            after = page[-1][0].position

    async def _walk(self, trail: AuditTrail, verifier: Verifier, compared: Copy | None) -> str | None:
        """To the end, which may move meanwhile; gives the head that belongs to it."""
        after = LOWEST
        while True:
            page = await trail.page_of_chain(after, PAGE)
            after = page[-1][0].position if page else after
            for link, record in page:
                verifier.take(link, record)
            if compared is not None:
                await compared.compare([link for link, _ in page])
            if not page:
                end = await trail.end()
                if end.position <= verifier.position:
                    if compared is not None:
                        await compared.end(is_chain_empty=verifier.links == 0)
                    return end.head

    async def link_if_allowed(self) -> int | None:
        """The same for whoever only looks. None: this user may not, or the head does not fit."""
        try:
            return await self.link()
        except AuditBroken:
            return None
        except Exception as error:
            if getattr(error, "sqlstate", None) != NOT_ALLOWED:
                raise
            return None

    async def _tell_unlinked(self, trail: AuditTrail, verifier: Verifier) -> None:
        place: Place | None = None
        while True:
            found = await trail.look(place, PAGE, older_than=WINDOW)
            verifier.unlinked(found.unlinked)
            if (place := found.following) is None:
                return

    async def _trail(self) -> AuditTrail:
        await self._start()
        return self._opened()


async def _key_for_subjects(trail: AuditTrail) -> bytes:
    try:
        return await trail.pseudonym_key()
    except Exception as error:
        if sqlstate_of(error) != NOT_ALLOWED:
            raise
        raise ConfigurationError(
            "this user may not find out under which pseudonym a data subject stands in the trail",
            hint=f"Give the pseudonym as the target, {TARGET}PSEUDONYM, or ask as a user who may read postlude_key.",
        ) from error
