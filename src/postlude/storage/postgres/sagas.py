"""What is read of sagas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.saga.decision import Record
from postlude.core.saga.instance import Instance
from postlude.ports.sagas import SagaFilter
from postlude.storage import saga_rows
from postlude.storage.postgres.connection import Database


class PostgresSagas:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, which: SagaFilter, *, after: tuple[datetime, UUID] | None = None, limit: int
    ) -> Sequence[dict[str, Any]]:
        after_at, after_id = after or (None, None)
        values = msgspec.structs.asdict(which) | {"after_at": after_at, "after_id": after_id}
        return [dict(row) for row in await self._database.fetch("list_sagas", limit=limit, **values)]

    async def get(self, saga_id: UUID) -> Instance | None:
        return next(iter(await self._instances("saga", id=saga_id)), None)

    async def newest(self, name: str, process_id: str) -> Instance | None:
        found = await self._instances("newest_saga", name=name, process_id=saga_rows.process(process_id))
        return next(iter(found), None)

    async def history(self, saga_id: UUID, *, limit: int) -> Sequence[Record]:
        return [Record(*row) for row in await self._database.fetch("saga_history", id=saga_id, limit=limit)]

    async def counts(self) -> Sequence[dict[str, Any]]:
        return [dict(row) for row in await self._database.fetch("count_sagas")]

    async def live(self, name: str, *, after: str = "", limit: int) -> Sequence[Instance]:
        return await self._instances("live_sagas", name=name, after=after, limit=limit)

    async def stalled(self, *, older_than: float, limit: int) -> Sequence[Instance]:
        ahead = self._database.ahead
        return await self._instances("stalled_sagas", older_than=float(older_than), limit=limit, ahead=ahead)

    async def _instances(self, statement: str, /, **values: Any) -> Sequence[Instance]:
        return [saga_rows.instance(row[0]) for row in await self._database.fetch(statement, **values)]
