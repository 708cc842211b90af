"""Erasing and rectifying a subject: here at once, and everywhere else by calls, in the caller's one transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from postlude.calls.events import CALLS, COMPLETIONS
from postlude.calls.resolvers import OWN, Resolvers
from postlude.core.calls import PREFIX, AbandonedSignal, CallOperation, Correction, SubjectRef, Whom, subject_id_text
from postlude.core.event import spec_of
from postlude.core.lanes import lane_of
from postlude.core.pseudonym import TARGET, pseudonym
from postlude.core.statement import Script
from postlude.erasure.oversight import Oversight
from postlude.erasure.replaying import Replaying, Sessions, erased_since
from postlude.erasure.requests import Request, checked
from postlude.erasure.views import ErasureResult
from postlude.errors import ConfigurationError
from postlude.outbox.outbox import Handles
from postlude.outbox.prepare import Message, Preparing, new_id
from postlude.outbox.routes import Routes
from postlude.ports.append import Route
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import CORRECTIONS, SUBJECT, Calls, CallScripts, NewCall, NewGroup
from postlude.ports.scripts import Scripts
from postlude.ports.subject_data import Local, SubjectData
from postlude.ports.trace import trace_id

T = TypeVar("T")
Hook = Callable[[AbandonedSignal], None]
DAY = 86_400.0


class ErasureParts(msgspec.Struct, frozen=True):
    """What the service works with, of one database."""

    handles: Handles
    scripts: Scripts
    call_scripts: CallScripts
    calls: Calls
    join: Callable[[Any], Awaitable[Preparing]]
    """Refuses a handle that is in no transaction; from then on, `preparing` knows the lanes."""
    preparing: Preparing
    routes: Routes
    appended: Callable[[], None]
    deadline_days: int
    seal: Callable[[UUID, Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]
    """What a call keeps secret, as it is to be stored."""


class ErasureService(Oversight):
    """`erase_subject` and `rectify_subject` join the caller's transaction; the rest is for operators."""

    def __init__(self, resolvers: Resolvers, parts: Callable[[], ErasureParts], hooks: list[Hook], start: Any) -> None:
        super().__init__(lambda: parts().calls, self._pseudonym_of, start)
        self._resolvers = resolvers
        self._get_parts = parts
        self._hooks = hooks
        self._data: SubjectData | None = None
        self._key: bytes | None = None

    # ------------------------------------------------------------ declaring

    def use(self, data: SubjectData) -> None:
        """Where subjects stand in the app's own tables. A map that cannot work is refused here."""
        data.plan()
        self._data = data

    @property
    def data(self) -> SubjectData | None:
        """The data map, if one is used."""
        return self._data

    def on_abandoned(self, hook: Hook) -> Hook:
        """Call it when a call is abandoned, after that and its audit record are durable, in a thread of its own."""
        if inspect.iscoroutinefunction(hook):
            raise ConfigurationError(
                "a hook of abandoned calls is a coroutine function, and would never be awaited",
                hint="Write def: it runs in a thread of its own, and may block.",
            )
        self._hooks.append(hook)
        return hook

    # ------------------------------------------------------------ requests

    async def erase_subject(
        self,
        session: Any,
        subject_id: Any,
        refs: Sequence[SubjectRef] = (),
        *,
        reason: str | None = None,
        actor: str = "app",
    ) -> ErasureResult:
        """Erase a subject from the app's tables and append the calls that erase it everywhere else. Nothing happens
        before the caller's commit, and nothing is left of it after a rollback."""
        request = checked(self._resolvers, CallOperation.erase, subject_id, refs, actor=actor, reason=reason)
        await self._get_parts().join(session)
        if self._data is not None:
            self._data.require_id(request.subject_id)
        subject = await self._lock(session, request)

        async def local(data: SubjectData) -> Local:
            return await data.erase(session, request.subject_id)

        done = await self._locally(session, request, subject, local)
        own = (SubjectRef(OWN, request.subject_id),) if await self._may_know(session, request, subject) else ()
        return await self._append_calls(session, request, subject, own, done)

    async def rectify_subject(
        self,
        session: Any,
        subject_id: Any,
        corrections: Sequence[Correction],
        refs: Sequence[SubjectRef] = (),
        *,
        reason: str | None = None,
        actor: str = "app",
    ) -> ErasureResult:
        """Correct a subject's data by category, here and at every resolver that has a reference."""
        request = checked(
            self._resolvers,
            CallOperation.rectify,
            subject_id,
            refs,
            corrections=corrections,
            actor=actor,
            reason=reason,
        )
        await self._get_parts().join(session)
        if self._data is not None:
            self._data.require_id(request.subject_id)
            self._data.require_categories(request.corrections)
        subject = await self._lock(session, request)

        async def local(data: SubjectData) -> Local:
            return await data.rectify(session, request.subject_id, request.corrections)

        done = await self._locally(session, request, subject, local)
        return await self._append_calls(session, request, subject, (), done)

    async def replay(
        self,
        copy: str | Path,
        *,
        since: datetime,
        sessions: Sessions,
        reason: str,
        actor: str = "app",
        refs: Callable[[str], Sequence[SubjectRef]] = lambda _: (),
        dry_run: bool = False,
    ) -> int:
        """After a restore: who was erased at or after the time of the backup, as the copy of the audit trail says, is
        erased again, each in a session of its own. Vendors were not restored; `refs` gives references for those that
        are to be called nevertheless. Gives how many subjects it were, or would be; it may be repeated."""
        if self._data is None:
            raise ConfigurationError("a replay needs a data map", hint="app.erasure.use(DataMap(...)) first.")
        await self._start()
        self._key = self._key or await self._get_parts().calls.pseudonym_key()

        async def again(session: Any, subject_id: str) -> None:
            await self.erase_subject(session, subject_id, refs(subject_id), reason=reason, actor=actor)
            entry = AuditEntry(
                actor=actor,
                action="erasure_replayed",
                target=TARGET + await self._pseudonym_of(subject_id),
                reason=reason,
                detail={"since": since.isoformat()},
            )
            await self._play(session, self._get_parts().scripts.audit(entry))

        erased = await asyncio.to_thread(erased_since, Path(copy), since)
        replaying = Replaying(self._data, self._key, sessions, again)
        return await (replaying.count(erased) if dry_run else replaying.run(erased))

    async def pseudonym(self, subject_id: Any) -> str:
        """What stands for a subject in the audit trail and in `ErasureCompleted`."""
        return await self._pseudonym_of(subject_id_text(subject_id))

    async def record_reveal(self, tx: Any, subject: str | None, *, actor: str, reason: str) -> None:
        """That somebody is about to see whom calls are about: of one subject, by pseudonym, or of many."""
        if not actor.strip() or not reason.strip():
            raise ConfigurationError("revealing needs an actor and a reason", hint="They stand in the audit record.")
        target = "calls" if subject is None else TARGET + subject
        entry = AuditEntry(actor=actor, action="reveal", target=target, reason=reason)
        await self._play(tx, self._get_parts().scripts.audit(entry))

    # ------------------------------------------------------------ inside

    async def _lock(self, session: Any, request: Request) -> str:
        """Whoever else asks something about this subject waits until the caller's transaction ends."""
        parts = self._get_parts()
        if self._key is None:
            self._key = await self._play(session, parts.scripts.pseudonym_key())
        subject = pseudonym(self._key, request.subject_id)
        erases = request.operation is CallOperation.erase
        await self._play(session, parts.call_scripts.lock_subject(subject, erases=erases))
        resolvers = ",".join(sorted({ref.kind for ref in request.refs}))
        await self._record(session, request, subject, "requested", {"resolvers": resolvers})
        return subject

    async def _locally(self, session: Any, request: Request, subject: str, work: Callable[[SubjectData], Any]) -> Local:
        done: Local = Local() if self._data is None else await work(self._data)
        counts: dict[str, str | int | bool] = {
            f"{table}.{what}": rows for table, found in done.tables.items() for what, rows in found.items()
        }
        if done.retained:
            counts["retained"] = "; ".join(done.retained)
        await self._record(session, request, subject, "local_completed", counts)
        return done

    async def _may_know(self, session: Any, request: Request, subject: str) -> bool:
        """Could our own tables know this subject when the caller's transaction is committed? What follows in it cannot
        be seen yet, and neither can what others are about to commit."""
        parts = self._get_parts()
        if parts.routes.may_name_subjects:
            return True
        return await self._play(session, parts.call_scripts.knows_subject(request.subject_id, subject))

    async def _append_calls(
        self, session: Any, request: Request, subject: str, own: Sequence[SubjectRef], done: Local
    ) -> ErasureResult:
        parts = self._get_parts()
        routes = parts.routes
        tells = any(True for _ in routes.targets(spec_of(COMPLETIONS[request.operation]).type))
        group = NewGroup(new_id(), subject, request.operation, parts.deadline_days * DAY, tells)
        calls = [await self._call(request, subject, group.id, ref) for ref in (*request.refs, *own)]
        generation = await self._play(session, parts.call_scripts.open_group(group, calls))
        parts.appended()
        asked = {ref.kind for ref in request.refs}
        return ErasureResult(
            subject_id=request.subject_id,
            group_id=group.id,
            generation=generation,
            calls=tuple(call.prepared.event_id for call in calls),
            skipped_resolvers=tuple(name for name in self._resolvers.names() if name not in asked),
            tables=done.tables,
            retained=done.retained,
        )

    async def _call(self, request: Request, subject: str, group: UUID, ref: SubjectRef) -> NewCall:
        """Its key is the subject: at one resolver, what was asked first is done first."""
        preparing = self._get_parts().preparing
        event = CALLS[request.operation](resolver=ref.kind, group=group)
        prepared = preparing.recorded(Message(event, correlation_id=str(group)))
        lane = lane_of(subject, prepared.event_id, preparing.lanes)
        prepared = msgspec.structs.replace(prepared, routes=(Route(PREFIX + ref.kind, lane, subject),))
        secrets = {SUBJECT: msgspec.json.encode(Whom(request.subject_id, ref))}
        if request.corrected is not None:
            secrets[CORRECTIONS] = request.corrected
        return NewCall(prepared, await self._get_parts().seal(prepared.event_id, secrets))

    async def _record(
        self, session: Any, request: Request, subject: str, name: str, detail: Mapping[str, str | int | bool]
    ) -> None:
        entry = AuditEntry(
            actor=request.actor,
            action=f"{request.operation.noun}_{name}",
            target=TARGET + subject,
            reason=request.reason,
            detail=detail,
            trace_id=trace_id(),
        )
        await self._play(session, self._get_parts().scripts.audit(entry))

    async def _pseudonym_of(self, subject_id: str) -> str:
        if self._key is None:
            self._key = await self._get_parts().calls.pseudonym_key()
        return pseudonym(self._key, subject_id)

    async def _play(self, session: Any, script: Script[T]) -> T:
        return await self._get_parts().handles.adapter(session).play(session, script)
