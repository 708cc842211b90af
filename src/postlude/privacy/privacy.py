"""What an operator does for data subjects: redact, seal all over again with a new key, drop a subject's own for good."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.calls import subject_id_text
from postlude.core.codec import digest
from postlude.core.delivery import StoredEvent
from postlude.core.pseudonym import TARGET
from postlude.core.sealing import HEADER
from postlude.errors import CannotOpen, ConfigurationError
from postlude.insight.bulk import Bulk, Told
from postlude.outbox.outbox import Handles
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import Calls, Secret
from postlude.ports.operating import Operation, OperationPage, Operations
from postlude.ports.privacy import Resealed, SubjectKey, Subjects, SubjectScripts
from postlude.ports.records import Filter
from postlude.ports.scripts import Scripts
from postlude.privacy.keyring import KeyRing
from postlude.privacy.redacting import APP, ASKED, Redacting, require_unnamed
from postlude.privacy.sealer import Sealer
from postlude.privacy.secrets import Vault, prefix_of
from postlude.privacy.subject_keys import NO_RING

log = logging.getLogger("postlude.privacy")

ACTION = "reseal"
PAGE = 500
OURSELVES = "postlude"


class PrivacyParts(msgspec.Struct, frozen=True):
    """What an engine gives."""

    scripts: Scripts
    subject_scripts: SubjectScripts
    subjects: Subjects
    operations: Operations
    handles: Handles
    bulk: Callable[[], Bulk]
    start: Callable[[], Awaitable[None]]
    transaction: Callable[[], AbstractAsyncContextManager[Any]]
    redacting: Redacting
    calls: Calls
    vault: Vault


class Rotation(Operation, frozen=True, kw_only=True):
    """The operation that sealed events again, and what it says nothing of."""

    keys_left: int = 0
    """Keys of data subjects that stay wrapped as they were: no key of the ring unwraps them."""
    secrets_left: int = 0
    """What calls keep secret and no key of the ring opens."""


class Privacy:
    """Of one database."""

    def __init__(self, sealer: Sealer, parts: PrivacyParts) -> None:
        self._sealer = sealer
        self._parts = parts
        self.redact = parts.redacting.redact

    # ------------------------------------------------------------ rotation

    async def rotate(
        self, *, actor: str = OURSELVES, reason: str = "the active key changed", told: Told | None = None
    ) -> Rotation:
        """Seal stored events and the secrets of calls again that another key of the ring has sealed, and wrap the keys
        of data subjects with the active one. Whoever is killed meanwhile resumes the operation. What cannot be opened is
        left as it is, and then fewer are done than there were, or `keys_left` or `secrets_left` is not 0."""
        _require(actor, reason)
        ring = self._ring
        await self._parts.start()
        active, _ = await ring.active()
        keys_left = await self._rewrap(active, actor, reason)
        secrets_left = await self._reseal_secrets(active, actor, reason)
        bulk = self._parts.bulk()
        planned = await bulk.plan(ACTION, Filter(), actor=actor, reason=reason, to=active)
        operation, _ = await bulk.start(planned, told)
        return Rotation(**msgspec.structs.asdict(operation), keys_left=keys_left, secrets_left=secrets_left)

    @property
    def _ring(self) -> KeyRing:
        if self._sealer.ring is None:
            raise ConfigurationError("there is no key ring to rotate", hint=NO_RING)
        return self._sealer.ring

    async def _rewrap(self, active: str, actor: str, reason: str) -> int:
        """Page by page. Whatever is left when it is killed is found the next time. Gives how many cannot be."""
        entry = AuditEntry(actor=actor, action="rewrap", target=f"key:{active}", reason=reason)
        after, left = "", 0
        while found := await self._parts.subjects.wrapped_otherwise(active, after=after, limit=PAGE):
            after = found[-1].subject
            pairs = [(one, new) for one in found if (new := await self._wrapped_anew(one)) is not None]
            if pairs:
                await self._parts.subjects.rewrap(pairs, entry)
            left += len(found) - len(pairs)
        return left

    async def _wrapped_anew(self, old: SubjectKey) -> SubjectKey | None:
        try:
            return await self._sealer.keys.wrap(old.subject, await self._sealer.keys.unwrap(old))
        except CannotOpen as error:
            log.warning("the key of a data subject stays wrapped by %s: %s", old.key_id, error.code)
            return None

    async def _reseal_secrets(self, active: str, actor: str, reason: str) -> int:
        """Likewise; also those from before there was a key ring."""
        entry = AuditEntry(actor=actor, action="reseal", target="calls", reason=reason, detail={"key": active})
        after: Secret | None = None
        left = 0
        while found := await self._parts.calls.secrets_but(prefix_of(active), after=after, limit=PAGE):
            after = found[-1]
            pairs = [(one, new) for one in found if (new := await self._secret_anew(one)) is not None]
            if pairs:
                await self._parts.calls.reseal(pairs, entry)
            left += len(found) - len(pairs)
        return left

    async def _secret_anew(self, old: Secret) -> Secret | None:
        try:
            return await self._parts.vault.sealed_again(old)
        except CannotOpen as error:
            log.warning("what call %s keeps secret stays as it is sealed: %s", old.entry_id, error.code)
            return None

    async def reseal(self, operation: Operation, page: OperationPage) -> Sequence[UUID] | None:
        """A page of the operation. Without the keys it stays where it is."""
        await self._ring.key(operation.destination or "")
        events: list[StoredEvent] = [row["event"] for row in page.rows]
        resealed: list[Resealed] = []
        for event, plain in zip(events, await self._sealer.open_outer(events), strict=True):
            if isinstance(plain, CannotOpen):
                log.warning("event %s stays as it is sealed: %s", event.event_id, plain.code)
                continue
            content = digest(event.type, event.version, event.content_type, event.key, plain.payload)
            resealed.append(await self._sealer.sealed_again(event, plain.payload, content, operation.destination or ""))
        return await self._parts.operations.reseal(operation, page, resealed)

    # ------------------------------------------------------------ shredding

    async def shred(self, subject_id: Any, *, actor: str = APP, reason: str = ASKED, tx: Any = None) -> bool:
        """Drop the own key of a data subject: what it has sealed can never be opened again, wherever it is, and nothing
        more is sealed for that subject. In a transaction of its own, or in the caller's. True also when it had no key
        (`has_key`) and is only marked now; False: it was done before."""
        _require(actor, reason)
        subject = subject_id_text(subject_id)
        require_unnamed(subject, actor, reason)
        if tx is not None:
            return await self._shred(tx, subject, actor, reason)
        await self._parts.start()
        async with self._parts.transaction() as handle:
            return await self._shred(handle, subject, actor, reason)

    async def has_key(self, subject_id: Any) -> bool:
        """Has a data subject a key of its own? It has from the first event on that was sealed for it alone."""
        await self._parts.start()
        async with self._parts.transaction() as handle:
            play = partial(self._parts.handles.adapter(handle).play, handle)
            subject = await self._sealer.pseudonym_of(play, subject_id_text(subject_id))
            found: SubjectKey | None = (await play(self._parts.subject_scripts.keys([subject]))).get(subject)
        return found is not None and found.key is not None

    async def _shred(self, handle: Any, subject_id: str, actor: str, reason: str) -> bool:
        adapter = self._parts.handles.adapter(handle)
        adapter.require_transaction(handle)
        play = partial(adapter.play, handle)
        subject = await self._sealer.pseudonym_of(play, subject_id)
        entry = AuditEntry(actor=actor, action="shred", target=TARGET + subject, reason=reason)
        return await play(self._parts.subject_scripts.shred(subject, entry))

    # ------------------------------------------------------------ revealing

    async def reveal(self, event: StoredEvent, *, actor: str, reason: str) -> StoredEvent:
        """The event opened, for somebody to look at; the audit says who and why. What cannot be opened stays sealed."""
        await self.audit_reveal(str(event.event_id), actor=actor, reason=reason)
        return (await self.opened([event]))[0]

    async def audit_reveal(self, target: str, *, actor: str, reason: str) -> None:
        _require(actor, reason)
        await self._parts.start()
        entry = AuditEntry(actor=actor, action="reveal", target=target, reason=reason)
        async with self._parts.transaction() as handle:
            await self._parts.handles.adapter(handle).play(handle, self._parts.scripts.audit(entry))

    async def opened(self, events: Sequence[StoredEvent]) -> list[StoredEvent]:
        """What cannot be opened stays sealed."""
        found = await self._sealer.open(events)
        return [event if isinstance(one, CannotOpen) else one for event, one in zip(events, found, strict=True)]


def is_sealed(event: StoredEvent) -> bool:
    return HEADER in event.headers


def _require(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise ConfigurationError("an action needs an actor and a reason", hint="They stand in the audit record.")
