"""Where deliveries go: a broker, a handler in this process, later a call to a foreign API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from postlude.core.delivery import Delivery, Fence, StoredEvent
from postlude.core.outcome import Outcome


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A delivery with its event."""

    delivery: Delivery
    event: StoredEvent


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a destination wants to be served."""

    name: str
    kind: str
    lanes: int
    batch: int
    """Entries a call."""
    parallel: int = 1
    """Calls at a time."""
    patience: float = 300.0
    """Seconds after which a call is taken for hung; the worker then loses its lanes."""
    ordered_failure: bool = False
    """A call may carry several entries of one key."""
    ordered_lanes: bool = False
    """A lane is in order as a whole, whatever the keys."""
    claim_for: float | None = None
    """Commit the attempt before it starts, and leave the row claimed for that long; None: the lane is claim enough."""


class Destination(Protocol):
    """`deliver` gives one outcome an entry, in order. Settled means that it settled the entry itself, under the fence."""

    @property
    def terms(self) -> Terms: ...
    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...
