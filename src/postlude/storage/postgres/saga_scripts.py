"""A saga's conversations on a caller's own handle, without I/O. Each is one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Fence
from postlude.core.saga.decision import Record
from postlude.core.saga.instance import Instance
from postlude.core.statement import Call, Script, Statement
from postlude.ports.append import Prepared
from postlude.ports.sagas import Advanced, SagaAudit
from postlude.storage import saga_rows
from postlude.storage.postgres.rows import fenced


class PostgresSagaScripts:
    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self._statements = statements

    def find(self, name: str, process_id: str, *, lock: bool) -> Script[Instance | None]:
        values = {"name": name, "process_id": saga_rows.process(process_id)}
        found = yield Call(self._statements["newest_saga_locked" if lock else "newest_saga"], values)
        return saga_rows.instance(found[0][0]) if found else None

    def get(self, saga_id: UUID, *, lock: bool) -> Script[Instance | None]:
        found = yield Call(self._statements["saga_locked" if lock else "saga"], {"id": saga_id})
        return saga_rows.instance(found[0][0]) if found else None

    def write(self, instance: Instance, history: Sequence[Record], *, was: int) -> Script[bool]:
        found = yield Call(self._statements["write_saga" if was else "start_saga"], _written(instance, history, was))
        return bool(found)

    def advance(
        self, instance: Instance, history: Sequence[Record], message: Prepared, *, was: int
    ) -> Script[Advanced | None]:
        values = _written(instance, history, was) | _message(message)
        name = "write_saga_2" if was else "start_saga_2"
        found = yield Call(self._statements[name], values)
        return Advanced(found[0][1], found[0][2]) if found else None

    def take(
        self, fence: Fence, delivery: Delivery, idle: float, saga_id: UUID
    ) -> Script[tuple[bool, Instance | None]]:
        if (values := fenced(fence, delivery)) is None:
            return False, None
        values |= {"idle": str(int(idle * 1000)), "id": saga_id}
        found = yield Call(self._statements["settle_handled_2"], values)
        body = found[0][1] if found else None
        return bool(found), None if body is None else saga_rows.instance(body)

    def note(self, saga_id: UUID, version: int, history: Sequence[Record]) -> Script[None]:
        if history:
            yield Call(self._statements["note_saga"], {"id": saga_id, "version": version, **_lines(history)})

    def cancel(self, destination: str, event_ids: Sequence[UUID]) -> Script[int]:
        if not event_ids:
            return 0
        values = {"destination": destination, "event_ids": list(map(str, event_ids))}
        found = yield Call(self._statements["cancel_deliveries"], values)
        return int(found[0][0])

    def bury(self, fence: Fence, delivery: Delivery, error: str) -> Script[bool]:
        if (values := fenced(fence, delivery)) is None:
            return False
        values |= {"destination": fence.destination, "error": saga_rows.storable(error)}
        found = yield Call(self._statements["bury_delivery"], values)
        return bool(found)

    def audit(self, entry: SagaAudit) -> Script[None]:
        yield Call(self._statements["audit_saga"], saga_rows.audit(entry))


def _written(instance: Instance, history: Sequence[Record], was: int) -> dict[str, Any]:
    times = {"created_at": instance.created_at, "updated_at": instance.updated_at, "ended_at": instance.ended_at}
    return {**saga_rows.columns(instance), **times, **_lines(history), "id": instance.id, "was": was}


def _message(prepared: Prepared) -> dict[str, Any]:
    """The values of an append, under names that a saga has not."""
    (route,) = prepared.routes
    values = msgspec.structs.asdict(prepared)
    values["event_version"], values["delivery_status"] = values.pop("version"), prepared.status
    values["subjects"] = list(prepared.subjects) or None
    return values | {"destination": route.destination, "lane": route.lane, "delivery_key": route.key}


def _lines(history: Sequence[Record]) -> dict[str, Any]:
    return {
        "ats": [line.at.isoformat() for line in history],
        "whats": [line.what for line in history],
        "steps": [saga_rows.storable(line.step) for line in history],
        "attempts": [str(line.attempt) for line in history],
        "details": [saga_rows.storable(line.detail) for line in history],
    }
