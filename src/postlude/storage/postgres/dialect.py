"""Values as PostgreSQL takes and gives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID


class PostgresDialect:
    def __init__(self, ahead: Callable[[], timedelta]) -> None:
        self._ahead = ahead

    def always(self) -> dict[str, Any]:
        return {"ahead": self._ahead()}

    def id(self, given: UUID) -> UUID:
        return given

    def uuid(self, stored: Any) -> UUID:
        return UUID(int=stored.int)

    def ids(self, given: Sequence[UUID]) -> dict[str, Any]:
        """The bounds let the planner prune partitions."""
        return {"ids": list(given), "low": min(given), "high": max(given)}

    def seqs(self, given: Sequence[int]) -> list[int]:
        return list(given)

    def moment(self, given: datetime) -> datetime:
        return given

    def datetime(self, stored: Any) -> datetime:
        moment: datetime = stored
        return moment

    def seconds(self) -> float:
        return time.time() + self._ahead().total_seconds()
