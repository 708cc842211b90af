"""How a database takes and gives values, for conversations that are the same with every database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

Values = dict[str, Any]


class Dialect(Protocol):
    def always(self) -> Values:
        """What every statement may ask for."""

    def id(self, given: UUID) -> Any: ...
    def uuid(self, stored: Any) -> UUID: ...
    def ids(self, given: Sequence[UUID]) -> Values: ...
    def seqs(self, given: Sequence[int]) -> Any: ...
    def moment(self, given: datetime) -> Any: ...
    def datetime(self, stored: Any) -> datetime: ...
    def seconds(self) -> float:
        """The time, in seconds since 1970."""
