"""Conversations on a caller's own handle, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from postlude.core.delivery import Delivery, Fence
from postlude.core.statement import Call, Script, Statement
from postlude.ports.append import Prepared, conflict, distinct, require_same
from postlude.ports.audit import AuditEntry
from postlude.ports.receiving import Taken
from postlude.storage.audit_values import audit_values
from postlude.storage.sqlite import rows

_PLAIN = ("type", "version", "source", "entity", "key", "topic", "content_type")


class SqliteScripts:
    def __init__(self, statements: Mapping[str, Statement], now: Callable[[], float]) -> None:
        self._statements = statements
        self._now = now

    def append(self, prepared: Sequence[Prepared]) -> Script[list[UUID]]:
        once = distinct(prepared)
        new = yield from self._append_one(once[0]) if len(once) == 1 else self._append_many(once)
        if len(new) < len(once):
            yield from self._compare([one for one in once if one.event_id.bytes not in new])
        return [one.event_id for one in prepared]

    def once(self, consumer: str, event_id: UUID) -> Script[bool]:
        found = yield self._call("once", {"consumer": consumer, "event_id": event_id.bytes})
        return bool(found)

    def receive(self, taken: Taken) -> Script[set[UUID]]:
        new: set[UUID] = set()
        if taken.events:
            new = yield from self._receive(taken)
        yield self._call("count_received", taken.counts(new))
        return new

    def _receive(self, taken: Taken) -> Script[set[UUID]]:
        pool = _Bytes()
        messages = rows.json([(pool.put(one.event_id.bytes), one.topic) for one in taken.events])
        values = {"consumer": taken.consumer, "messages": messages, "bytes": pool.joined()}
        found = yield self._call("receive", values)
        unseen = {UUID(bytes=row[0]) for row in found}
        events = [one for one in taken.events if one.event_id in unseen]
        if events:
            pool = _Bytes()
            packed = rows.json([_packed(one, pool) for one in events])
            stored = yield self._call("append_many", {"events": packed, "bytes": pool.joined()})
            written = {row[0] for row in stored}
            pool = _Bytes()
            routed = rows.json([route for one in events for route in _packed_routes(one, pool)])
            yield self._call("receive_2", {"deliveries": routed, "bytes": pool.joined()})
            yield from self._compare_received(
                [one for one in events if one.event_id.bytes not in written and not one.is_lost]
            )
        return unseen

    def _compare_received(self, known: Sequence[Prepared]) -> Script[None]:
        """Another consumer took it before, or this database appended it: then its key may be another one."""
        differing = (yield from self._differing(known)) if known else []
        if differing:
            found = yield self._call("contents", rows.ids([one.event_id for one in differing]))
            require_same(differing, {UUID(bytes=row[0]): (row[1], row[2], row[3]) for row in found})

    def lanes(self) -> Script[int | None]:
        found = yield self._call("installed_lanes", {})
        return int(found[0][0]) if found else None

    def pseudonym_key(self) -> Script[bytes]:
        found = yield self._call("installation_key", {"name": "pseudonym"})
        return bytes(found[0][0])

    def audit(self, entry: AuditEntry) -> Script[None]:
        yield self._call("audit", audit_values(entry))

    def settle_handled(self, fence: Fence, delivery: Delivery, idle: float) -> Script[bool]:  # noqa: ARG002 - nobody waits for a row here; the handler's time limit ends a transaction that hangs
        if (values := rows.fenced(fence, delivery)) is None:
            return False
        found = yield self._call("settle_handled", values)
        if found:
            yield self._call("settle_handled_2", {"seq": delivery.seq})
        return bool(found)

    def _append_one(self, prepared: Prepared) -> Script[set[bytes]]:
        found = yield self._call("append", _event(prepared))
        if found and prepared.routes:
            yield self._call("append_2", _deliveries(prepared))
        return {row[0] for row in found}

    def _append_many(self, prepared: Sequence[Prepared]) -> Script[set[bytes]]:
        pool = _Bytes()
        values = {"events": rows.json([_packed(one, pool) for one in prepared])}
        found = yield self._call("append_many", values | {"bytes": pool.joined()})
        new = {row[0] for row in found}
        pool = _Bytes()
        routed = [packed for one in prepared if one.event_id.bytes in new for packed in _packed_routes(one, pool)]
        if routed:
            yield self._call("append_many_2", {"deliveries": rows.json(routed), "bytes": pool.joined()})
        return new

    def _compare(self, known: Sequence[Prepared]) -> Script[None]:
        """Only when an id was there already: same content is fine, other content is not."""
        if differing := (yield from self._differing(known)):
            raise conflict([one.event_id for one in differing])

    def _differing(self, known: Sequence[Prepared]) -> Script[list[Prepared]]:
        found = yield self._call("digests", rows.ids([one.event_id for one in known]))
        stored: dict[bytes, bytes] = dict(found)
        return [one for one in known if not one.is_as(stored.get(one.event_id.bytes))]

    def _call(self, name: str, values: dict[str, Any]) -> Call:
        return Call(self._statements[name], {"now": self._now(), **values})


class _Bytes:
    """Blobs end to end, for JSON cannot carry them. Places count from 1, as in SQL."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._end = 1

    def put(self, part: bytes) -> int:
        at = self._end
        self._parts.append(part)
        self._end += len(part)
        return at

    def put_id(self, value: UUID | None) -> int | None:
        return None if value is None else self.put(value.bytes)

    def joined(self) -> bytes:
        return b"".join(self._parts)


def _event(one: Prepared) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(one, name) for name in _PLAIN}
    return values | {
        "event_id": one.event_id.bytes,
        "payload": one.payload,
        "digest": one.digest,
        "headers": one.headers,
        "correlation_id": one.correlation_id,
        "causation_id": one.causation_id and one.causation_id.bytes,
        "saga_id": one.saga_id and one.saga_id.bytes,
        "subjects": rows.json(one.subjects) if one.subjects else None,
    }


def _deliveries(one: Prepared) -> dict[str, Any]:
    return {
        "event_id": one.event_id.bytes,
        "routes": rows.json([(route.destination, route.lane, route.key) for route in one.routes]),
        "priority": one.priority,
        "status": one.status,
        "max_attempts": one.max_attempts,
        "available_at": rows.seconds(one.available_at),
    }


def _packed(one: Prepared, pool: _Bytes) -> tuple[Any, ...]:
    return (
        pool.put(one.event_id.bytes),
        *(getattr(one, name) for name in _PLAIN),
        pool.put(one.payload),
        len(one.payload),
        pool.put(one.digest),
        len(one.digest),
        one.headers,
        one.correlation_id,
        pool.put_id(one.causation_id),
        pool.put_id(one.saga_id),
        rows.json(one.subjects) if one.subjects else None,
    )


def _packed_routes(one: Prepared, pool: _Bytes) -> list[tuple[Any, ...]]:
    at = pool.put(one.event_id.bytes)
    terms = (one.priority, one.status, one.max_attempts, rows.seconds(one.available_at))
    return [(at, route.destination, route.lane, route.key, *terms) for route in one.routes]
