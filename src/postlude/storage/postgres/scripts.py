"""Conversations on a caller's own handle, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Fence
from postlude.core.statement import Call, Script, Statement
from postlude.ports.append import Prepared, conflict, distinct, require_same
from postlude.ports.audit import AuditEntry
from postlude.ports.receiving import Taken
from postlude.storage.audit_values import audit_values
from postlude.storage.postgres.rows import fenced

_SAME = (
    "event_id", "type", "version", "source", "entity", "key", "topic", "content_type", "payload", "digest", "headers",
    "correlation_id", "causation_id", "saga_id",
)  # fmt: skip
_PLURAL = {"entity": "entities", "headers": "headers"}


class PostgresScripts:
    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self._statements = statements

    def append(self, prepared: Sequence[Prepared]) -> Script[list[UUID]]:
        if len(prepared) == 1:
            events, call = prepared, self._append_one(prepared[0])
        else:
            events = distinct(prepared)
            call = Call(self._statements["append_many"], _many(events))
        rows = yield call
        if len(rows) < len(events):
            new = {row[0] for row in rows}
            yield from self._compare([one for one in events if one.event_id not in new])
        return [one.event_id for one in prepared]

    def _append_one(self, prepared: Prepared) -> Call:
        values = msgspec.structs.asdict(prepared)
        values["subjects"] = list(prepared.subjects) or None
        values["status"] = prepared.status
        if len(prepared.routes) == 1:
            route = prepared.routes[0]
            values |= {"destination": route.destination, "lane": route.lane, "delivery_key": route.key}
            return Call(self._statements["append"], values)
        values["destinations"] = [route.destination for route in prepared.routes]
        values["lanes"] = [str(route.lane) for route in prepared.routes]
        values["keys"] = [route.key for route in prepared.routes]
        return Call(self._statements["append_2"], values)

    def _compare(self, known: Sequence[Prepared]) -> Script[None]:
        """Only when an id was there already: same content is fine, other content is not."""
        if differing := (yield from self._differing(known)):
            raise conflict([one.event_id for one in differing])

    def _differing(self, known: Sequence[Prepared]) -> Script[list[Prepared]]:
        rows = yield Call(self._statements["digests"], {"event_ids": [one.event_id for one in known]})
        stored = {row[0]: bytes(row[1]) for row in rows}
        return [one for one in known if not one.is_as(stored.get(one.event_id))]

    def once(self, consumer: str, event_id: UUID) -> Script[bool]:
        found = yield Call(self._statements["once"], {"consumer": consumer, "event_id": event_id})
        return bool(found)

    def receive(self, taken: Taken) -> Script[set[UUID]]:
        new: set[UUID] = set()
        if taken.events:
            rows = yield Call(self._statements["receive"], {"consumer": taken.consumer, **_many(taken.events)})
            new = {row[0] for row in rows}
            stored = {row[0] for row in rows if not row[1]}
            yield from self._compare_received(
                [one for one in taken.events if one.event_id in stored and not one.is_lost]
            )
        yield Call(self._statements["count_received"], taken.counts(new))
        return new

    def _compare_received(self, known: Sequence[Prepared]) -> Script[None]:
        """Another consumer took it before, or this database appended it: then its key may be another one."""
        differing = (yield from self._differing(known)) if known else []
        if differing:
            ids = [one.event_id for one in differing]
            rows = yield Call(self._statements["contents"], {"event_ids": ids})
            require_same(differing, {row[0]: (row[1], row[2], row[3] and bytes(row[3])) for row in rows})

    def lanes(self) -> Script[int | None]:
        rows = yield Call(self._statements["installed_lanes"], {})
        return int(rows[0][0]) if rows else None

    def pseudonym_key(self) -> Script[bytes]:
        rows = yield Call(self._statements["installation_key"], {"name": "pseudonym"})
        return bytes(rows[0][0])

    def audit(self, entry: AuditEntry) -> Script[None]:
        yield Call(self._statements["audit"], audit_values(entry))

    def settle_handled(self, fence: Fence, delivery: Delivery, idle: float) -> Script[bool]:
        if (values := fenced(fence, delivery)) is None:
            return False
        rows = yield Call(self._statements["settle_handled"], values | {"idle": str(int(idle * 1000))})
        return bool(rows)


def _many(prepared: Sequence[Prepared]) -> dict[str, Any]:
    values: dict[str, Any] = {_PLURAL.get(name, name + "s"): [getattr(one, name) for one in prepared] for name in _SAME}
    values["subjects"] = [msgspec.json.encode(one.subjects).decode() if one.subjects else None for one in prepared]
    routes = [(one, route) for one in prepared for route in one.routes]
    values["of_events"] = [one.event_id for one, _ in routes]
    values["destinations"] = [route.destination for _, route in routes]
    values["lanes"] = [route.lane for _, route in routes]
    values["delivery_keys"] = [route.key for _, route in routes]
    values["priorities"] = [one.priority for one, _ in routes]
    values["statuses"] = [one.status for one, _ in routes]
    values["max_attempts"] = [one.max_attempts for one, _ in routes]
    values["available_ats"] = [one.available_at for one, _ in routes]
    return values
