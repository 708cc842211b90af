"""What an operator does, each with its audit record in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from postlude.ports.settling import Child
from postlude.ports.trace import trace_id
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session

# The first statement writes the audit record and says what is meant; the others change it.
STEPS = {
    "requeue": ("requeue_2",),
    "discard": ("discard_2", "discard_3"),
    "bury": ("bury_2",),
}
BURIED = '{"kind":"Buried"}'
BY_IDS = {"seqs": None, "status": None, "detail": None}
"""An action on events by id is no page of an operation."""


class SqliteOperating:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def act(
        self, action: str, event_ids: Sequence[UUID], *, actor: str, reason: str, destination: str | None
    ) -> list[UUID]:
        values = rows.ids(event_ids)
        values |= {"actor": actor, "reason": reason, "destination": destination, "error": BURIED, **BY_IDS}
        values["trace_id"] = trace_id()
        changed = await self._database.write(lambda session: _act(session, action, values))
        return [event_id for event_id in dict.fromkeys(event_ids) if str(event_id) in changed]

    async def replay(self, children: Sequence[Child], *, actor: str, reason: str) -> list[UUID]:
        values = rows.children(children)
        values |= {"actor": actor, "reason": reason, "detail": None, "trace_id": trace_id()}
        return await self._database.write(lambda session: _replay(session, values))

    async def pause(self, destination: str, *, actor: str, reason: str) -> bool:
        return await self._switch("pause", destination, actor, reason)

    async def resume(self, destination: str, *, actor: str, reason: str) -> bool:
        return await self._switch("resume", destination, actor, reason)

    async def _switch(self, name: str, destination: str, actor: str, reason: str) -> bool:
        values = {"destination": destination, "actor": actor, "reason": reason, "trace_id": trace_id()}
        return await self._database.write(lambda session: _switch(session, name, values))


def _act(session: Session, action: str, values: dict[str, Any]) -> set[str]:
    changed = {row[0] for row in session.fetch(action, **values)}
    for step in STEPS[action]:
        session.fetch(step, **values)
    return changed


def _replay(session: Session, values: dict[str, Any]) -> list[UUID]:
    added = rows.json([row[0] for row in session.fetch("replay", **values)])
    return [UUID(row[0]) for row in session.fetch("replay_2", seqs=added, **values)]


def _switch(session: Session, name: str, values: dict[str, Any]) -> bool:
    changed = bool(session.fetch(name, **values))
    if changed:
        session.fetch(f"{name}_2", **values)
    return changed
