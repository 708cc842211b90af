"""The options of an append, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypedDict
from uuid import UUID


class AppendOptions(TypedDict, total=False):
    """`available_at` delays an event (it then does not hold its key); `priority` goes only without a key."""

    id: UUID | str | None
    key: str | None
    topic: str | None
    headers: Mapping[str, str] | None
    priority: Literal["high", "normal", "low"]
    available_at: datetime | None
    max_attempts: int | None
    correlation_id: str | None
    causation_id: UUID | None
    subjects: Sequence[str] | None
    optimistic: bool | None
