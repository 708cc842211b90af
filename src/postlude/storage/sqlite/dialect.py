"""Values as SQLite takes and gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from postlude.storage.sqlite import rows


class SqliteDialect:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def always(self) -> dict[str, Any]:
        return {"now": self._now()}

    def id(self, given: UUID) -> bytes:
        return given.bytes

    def uuid(self, stored: Any) -> UUID:
        return UUID(bytes=stored)

    def ids(self, given: Sequence[UUID]) -> dict[str, Any]:
        return rows.ids(given)

    def seqs(self, given: Sequence[int]) -> str:
        return rows.json(given)

    def moment(self, given: datetime) -> float:
        return given.timestamp()

    def datetime(self, stored: Any) -> datetime:
        return rows.moment(stored)

    def seconds(self) -> float:
        return self._now()
