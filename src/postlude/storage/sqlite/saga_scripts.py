"""A saga's conversations on a caller's own handle, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from postlude.core.delivery import Delivery, Fence
from postlude.core.saga.decision import Record
from postlude.core.saga.instance import Instance
from postlude.core.statement import Call, Script, Statement
from postlude.ports.append import Prepared
from postlude.ports.sagas import Advanced, SagaAudit
from postlude.storage import saga_rows
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.scripts import SqliteScripts


class SqliteSagaScripts:
    def __init__(self, statements: Mapping[str, Statement], now: Callable[[], float]) -> None:
        self._statements = statements
        self._now = now
        self._scripts = SqliteScripts(statements, now)

    def find(self, name: str, process_id: str, *, lock: bool) -> Script[Instance | None]:
        values = {"name": name, "process_id": saga_rows.process(process_id)}
        return (yield from self._read("newest_saga", values, lock=lock))

    def get(self, saga_id: UUID, *, lock: bool) -> Script[Instance | None]:
        return (yield from self._read("saga", {"id": saga_id.bytes}, lock=lock))

    def write(self, instance: Instance, history: Sequence[Record], *, was: int) -> Script[bool]:
        values = saga_rows.columns(instance)
        values |= {"id": instance.id.bytes, "was": was, "created_at": rows.seconds(instance.created_at)}
        values |= {"updated_at": rows.seconds(instance.updated_at), "ended_at": rows.seconds(instance.ended_at)}
        found = yield self._call("write_saga" if was else "start_saga", values)
        if found:
            yield from self.note(instance.id, instance.version, history)
        return bool(found)

    def advance(
        self, instance: Instance, history: Sequence[Record], message: Prepared, *, was: int
    ) -> Script[Advanced | None]:
        if not (yield from self.write(instance, history, was=was)):
            return None
        yield from self._scripts.append([message])
        return Advanced()

    def take(
        self, fence: Fence, delivery: Delivery, idle: float, saga_id: UUID
    ) -> Script[tuple[bool, Instance | None]]:
        settled = yield from self._scripts.settle_handled(fence, delivery, idle)
        found = (yield from self.get(saga_id, lock=False)) if settled else None
        return settled, found

    def note(self, saga_id: UUID, version: int, history: Sequence[Record]) -> Script[None]:
        if history:
            values = {"id": saga_id.bytes, "version": version, "history": rows.json(list(map(_line, history)))}
            yield self._call("note_saga", values)

    def cancel(self, destination: str, event_ids: Sequence[UUID]) -> Script[int]:
        if not event_ids:
            return 0
        found = yield self._call("cancel_deliveries", {"destination": destination, **rows.ids(event_ids)})
        if found:
            yield self._call("cancel_deliveries_2", {"seqs": rows.json([row[0] for row in found])})
        return len(found)

    def bury(self, fence: Fence, delivery: Delivery, error: str) -> Script[bool]:
        if (values := rows.fenced(fence, delivery)) is None:
            return False
        values |= {"destination": fence.destination, "error": saga_rows.storable(error)}
        found = yield self._call("bury_delivery", values)
        return bool(found)

    def audit(self, entry: SagaAudit) -> Script[None]:
        yield self._call("audit_saga", saga_rows.audit(entry))

    def _read(self, name: str, values: dict[str, Any], *, lock: bool) -> Script[Instance | None]:
        if lock:
            yield self._call(f"{name}_locked", {})
        found = yield self._call(f"{name}_locked_2" if lock else name, values)
        return saga_rows.instance(found[0][0]) if found else None

    def _call(self, name: str, values: dict[str, Any]) -> Call:
        return Call(self._statements[name], {"now": self._now(), **values})


def _line(one: Record) -> tuple[Any, ...]:
    step, detail = saga_rows.storable(one.step), saga_rows.storable(one.detail)
    return (one.at.timestamp(), one.what, step, one.attempt, detail)
