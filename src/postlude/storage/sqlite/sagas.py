"""What is read of sagas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from postlude.core.saga.decision import Record
from postlude.core.saga.instance import Instance
from postlude.ports.sagas import SagaFilter
from postlude.storage import saga_rows
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database


class SqliteSagas:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, which: SagaFilter, *, after: tuple[datetime, UUID] | None = None, limit: int
    ) -> Sequence[dict[str, Any]]:
        values: dict[str, Any] = {"name": which.name, "status": which.status, "process_id": which.process_id}
        values |= {"since": rows.seconds(which.since), "until": rows.seconds(which.until), "limit": limit}
        values |= {"after_at": after and after[0].timestamp(), "after_id": after and after[1].bytes}
        found = await self._database.read(lambda session: session.mappings("list_sagas", **values))
        return [rows.mapping(row) for row in found]

    async def get(self, saga_id: UUID) -> Instance | None:
        return next(iter(await self._instances("saga", id=saga_id.bytes)), None)

    async def newest(self, name: str, process_id: str) -> Instance | None:
        found = await self._instances("newest_saga", name=name, process_id=saga_rows.process(process_id))
        return next(iter(found), None)

    async def history(self, saga_id: UUID, *, limit: int) -> Sequence[Record]:
        values = {"id": saga_id.bytes, "limit": limit}
        found = await self._database.read(lambda session: session.fetch("saga_history", **values))
        return [Record(rows.moment(at), *line) for at, *line in found]

    async def counts(self) -> Sequence[dict[str, Any]]:
        return await self._database.read(lambda session: session.mappings("count_sagas"))

    async def live(self, name: str, *, after: str = "", limit: int) -> Sequence[Instance]:
        return await self._instances("live_sagas", name=name, after=after, limit=limit)

    async def stalled(self, *, older_than: float, limit: int) -> Sequence[Instance]:
        return await self._instances("stalled_sagas", older_than=older_than, limit=limit)

    async def _instances(self, statement: str, /, **values: Any) -> Sequence[Instance]:
        found = await self._database.read(lambda session: session.fetch(statement, **values))
        return [saga_rows.instance(row[0]) for row in found]
