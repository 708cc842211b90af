"""A page of a redaction, as a conversation that is the same with every database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from postlude.core.lifecycle import Status
from postlude.core.pseudonym import TARGET
from postlude.core.redaction import OpenDelivery, Steps, steps_of
from postlude.core.saga.instance import Instance
from postlude.core.saga.redacted import redacted
from postlude.core.statement import Call, Row, Script, Statement
from postlude.ports.audit import AuditEntry
from postlude.ports.redaction import RedactedPage, Wanted
from postlude.storage import saga_rows
from postlude.storage.audit_values import audit_values
from postlude.storage.dialect import Dialect, Values


class Redacting:
    def __init__(self, statements: Mapping[str, Statement], dialect: Dialect) -> None:
        self._statements = statements
        self._dialect = dialect

    def events(self, wanted: Wanted, *, after: UUID, limit: int) -> Script[RedactedPage]:
        dialect = self._dialect
        named = {"subject_id": wanted.subject_id}
        found = yield self._call("redact_find", **named, after=dialect.id(after), limit=limit)
        if not found:
            return RedactedPage(last=None)
        listed = [dialect.uuid(row[0]) for row in found]
        locked = yield self._call("redact_lock", **named, **dialect.ids(listed))
        ids = [dialect.uuid(row[0]) for row in locked]
        if not ids:
            return RedactedPage(last=listed[-1])
        deliveries = yield from self._deliveries(ids, discards=wanted.discards)
        linked = yield self._call("redact_linked", **dialect.ids(ids))
        pairs = [(dialect.uuid(event), dialect.uuid(saga)) for event, saga in linked]
        bodies = yield from self._ended(sorted({saga for _, saga in pairs}))
        held = {saga for _, saga in pairs} - bodies.keys()
        steps = steps_of(ids, deliveries, pairs, held, discards=wanted.discards)
        yield from self._change(wanted, steps)
        return (yield from self._finish(wanted, steps, bodies, last=listed[-1]))

    def sagas(self, wanted: Wanted, *, limit: int) -> Script[RedactedPage]:
        found = yield self._call("redact_processes", subject_id=wanted.subject_id, limit=limit)
        ids = sorted(self._dialect.uuid(row[0]) for row in found)
        bodies = yield from self._ended(ids)
        steps = Steps([], [], set(bodies), set(), set(ids) - bodies.keys())
        return (yield from self._finish(wanted, steps, bodies, last=None))

    def remembered(self, wanted: Wanted, *, after: UUID, limit: int) -> Script[RedactedPage]:
        named = {"subject_id": wanted.subject_id}
        found = yield self._call("redact_remembered", **named, after=self._dialect.id(after), limit=limit)
        if not found:
            return RedactedPage(last=None)
        there = {self._dialect.uuid(saga_id): bool(is_there) for saga_id, is_there in found}
        bodies = yield from self._ended(list(there))
        held = {saga_id for saga_id, is_there in there.items() if is_there} - bodies.keys()
        if over := [saga_id for saga_id in there if saga_id not in held]:
            yield self._call("redact_forget", **named, **self._dialect.ids(over))
        steps = Steps([], [], set(bodies), set(), held)
        return (yield from self._finish(wanted, steps, bodies, last=max(there)))

    def rectifications(self, wanted: Wanted) -> Script[RedactedPage]:
        found = yield self._call("redact_rectifications", subject=wanted.subject)
        if not found:
            return RedactedPage(last=None)
        ids = [self._dialect.uuid(row[0]) for row in found]
        deliveries = yield from self._deliveries(ids, discards=wanted.discards)
        holding = {one.seq for one in deliveries if one.holds(discards=wanted.discards)}
        steps = Steps([], [one.seq for one in deliveries if one.seq not in holding], set(), holding, set())
        yield from self._change(wanted, steps)
        return (yield from self._finish(wanted, steps, {}, last=None))

    def shred(self, wanted: Wanted) -> Script[bool]:
        found = yield self._call("redact_key", subject=wanted.subject)
        if found:
            yield from self._audit(wanted, "shred", {})
        return bool(found)

    # ------------------------------------------------------------ inside

    def _deliveries(self, ids: Sequence[UUID], *, discards: bool) -> Script[list[OpenDelivery]]:
        """What may be discarded is locked; what could not be is under way: settled, requeued or taken right now."""
        locked = yield self._call("redact_deliveries", **self._dialect.ids(ids), discards=discards)
        free = {row[0] for row in locked}
        rows = yield self._call("redact_deliveries_again", **self._dialect.ids(ids))
        return [_open(row, self._dialect.uuid(row[1]), is_free=row[0] in free) for row in rows]

    def _ended(self, ids: Sequence[UUID]) -> Script[dict[UUID, Instance]]:
        """Of these, locked, those that have ended and have nothing on its way to them."""
        if not ids:
            return {}
        rows = yield self._call("redact_sagas", **self._dialect.ids(ids))
        found = [saga_rows.instance(body) for body, is_busy in rows if not is_busy]
        return {one.id: one for one in found if one.status.is_end}

    def _change(self, wanted: Wanted, steps: Steps) -> Script[None]:
        if steps.discard:
            values = {"actor": wanted.actor, "reason": wanted.reason, "seqs": self._dialect.seqs(steps.discard)}
            yield from self._all_of("redact_discard", values)
        if steps.redact:
            values = {"subject_id": wanted.subject_id, **self._dialect.ids(steps.redact)}
            yield from self._all_of("redact_events", values)

    def _finish(
        self, wanted: Wanted, steps: Steps, bodies: Mapping[UUID, Instance], *, last: UUID | None
    ) -> Script[RedactedPage]:
        now = datetime.fromtimestamp(self._dialect.seconds(), UTC)
        sagas = 0
        for saga_id in sorted(steps.sagas):
            before = bodies[saga_id]
            after = redacted(before, wanted.subject_id, wanted.subject, now)
            if after is not before:
                sagas += 1
                yield from self._write(after)
        page = RedactedPage(
            last=last,
            events=len(steps.redact),
            deliveries=len(steps.discard),
            sagas=sagas,
            waiting_deliveries=frozenset(steps.waiting_deliveries),
            waiting_sagas=frozenset(steps.waiting_sagas),
        )
        if page.has_changed:
            counts = {"events": page.events, "deliveries": page.deliveries, "sagas": page.sagas}
            counts["waits"] = len(page.waiting_deliveries) + len(page.waiting_sagas)
            pending = "discard" if wanted.discards else "publish_first"
            yield from self._audit(wanted, "redact", {**counts, "pending": pending})
        return page

    def _write(self, after: Instance) -> Script[None]:
        values = saga_rows.columns(after)
        values |= {"id": self._dialect.id(after.id), "was": after.version - 1}
        yield self._call("redact_saga", **values, updated_at=self._dialect.moment(after.updated_at))
        yield self._call("redact_saga_2", id=self._dialect.id(after.id))

    def _audit(self, wanted: Wanted, action: str, detail: Mapping[str, str | int | bool]) -> Script[None]:
        target = TARGET + wanted.subject
        entry = AuditEntry(actor=wanted.actor, action=action, target=target, reason=wanted.reason, detail=detail)
        yield self._call("audit", **audit_values(entry))

    def _all_of(self, name: str, values: Values) -> Script[None]:
        """One statement, or several where a database needs them."""
        yield self._call(name, **values)
        for following in (f"{name}_2", f"{name}_3"):
            if following in self._statements:
                yield self._call(following, **values)

    def _call(self, name: str, /, **values: Any) -> Call:
        return Call(self._statements[name], self._dialect.always() | values)


def _open(row: Row, event_id: UUID, *, is_free: bool) -> OpenDelivery:
    return OpenDelivery(row[0], event_id, row[2], Status(row[3]), is_free)
