"""Calls in completion groups, as conversations that are the same with every database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from postlude.core.calls import CallOperation
from postlude.core.delivery import Delivery, Fence
from postlude.core.lifecycle import Status
from postlude.core.statement import Call, Row, Script, Statement
from postlude.ports.append import Prepared, Route
from postlude.ports.calls import VERIFICATION, NewCall, NewGroup, StoredCall, StoredGroup
from postlude.storage.dialect import Dialect, Values

_SAME = ("type", "version", "source", "topic", "content_type", "payload", "digest", "headers", "correlation_id")


class Calling:
    def __init__(self, statements: Mapping[str, Statement], dialect: Dialect) -> None:
        self._statements = statements
        self._dialect = dialect

    def lock_subject(self, subject: str, *, erases: bool) -> Script[None]:
        yield self._call("lock_subject", subject=subject, erasures=int(erases))

    def knows_subject(self, subject_id: str, subject: str) -> Script[bool]:
        found = yield self._call("knows_subject", subject_id=subject_id, subject=subject)
        return bool(found[0][0])

    def open_group(self, group: NewGroup, calls: Sequence[NewCall]) -> Script[int]:
        id = self._dialect.id(group.id)
        found = yield self._call(
            "open_group",
            id=id,
            subject=group.subject,
            operation=str(group.operation),
            calls=len(calls),
            tells=group.tells,
            deadline_seconds=group.deadline_seconds,
        )
        for call in calls:
            yield from self._append(call, id)
        return int(found[0][0])

    def park(
        self, fence: Fence, delivery: Delivery, *, until: datetime, least: float, horizon: bytes
    ) -> Script[datetime | None]:
        epoch = fence.epochs.get(delivery.lane)
        if epoch is None:
            return None
        found = yield self._call(
            "park_call",
            worker=self._dialect.id(fence.worker),
            epoch=epoch,
            seq=delivery.seq,
            status=str(delivery.status),
            attempts=delivery.attempts,
            until=self._dialect.moment(until),
            least=least,
        )
        if not found:
            return None
        yield self._call("park_call_2", event_id=found[0][1], horizon=horizon)
        return self._dialect.datetime(found[0][0])

    def append_verification(self, fence: Fence, delivery: Delivery, content: bytes) -> Script[None]:
        event = self._dialect.id(delivery.event_id)
        yield from self._deliver(event, Route(fence.destination, delivery.lane, None), None, {VERIFICATION: content})

    def _append(self, call: NewCall, group: Any) -> Script[None]:
        prepared = call.prepared
        event = self._dialect.id(prepared.event_id)
        yield self._call("append_call", event_id=event, **self._event(prepared))
        (route,) = prepared.routes
        yield from self._deliver(event, route, group, call.secrets)

    def _deliver(self, event: Any, route: Route, group: Any, secrets: Mapping[str, bytes]) -> Script[None]:
        yield self._call(
            "append_call_2",
            event_id=event,
            destination=route.destination,
            lane=route.lane,
            delivery_key=route.key,
            group_id=group,
        )
        for part, content in secrets.items():
            yield self._call("append_call_3", event_id=event, part=part, content=content)

    def _event(self, prepared: Prepared) -> Values:
        cause = prepared.causation_id
        values = {name: getattr(prepared, name) for name in _SAME}
        return values | {"causation_id": None if cause is None else self._dialect.id(cause)}

    def _call(self, name: str, /, **values: Any) -> Call:
        return Call(self._statements[name], self._dialect.always() | values)


def stored_call(row: Row, dialect: Dialect) -> StoredCall:
    entry_id, destination, operation, subject, secret, status, attempts, error, attempted_at, available_at, made = row
    return StoredCall(
        entry_id=dialect.uuid(entry_id),
        destination=destination,
        operation=CallOperation(operation),
        subject=subject,
        secret=None if secret is None else bytes(secret),
        status=Status(status),
        attempts=attempts,
        error=error,
        attempted_at=None if attempted_at is None else dialect.datetime(attempted_at),
        available_at=dialect.datetime(available_at),
        created_at=dialect.datetime(made),
    )


def stored_group(row: Row, dialect: Dialect) -> StoredGroup:
    id, subject, operation, generation, open, calls, discarded, created_at, deadline, completed_at, is_overdue = row
    return StoredGroup(
        id=dialect.uuid(id),
        subject=subject,
        operation=CallOperation(operation),
        generation=generation,
        open=open,
        calls=calls,
        discarded=discarded,
        created_at=dialect.datetime(created_at),
        deadline=dialect.datetime(deadline),
        completed_at=None if completed_at is None else dialect.datetime(completed_at),
        is_overdue=bool(is_overdue),
    )
