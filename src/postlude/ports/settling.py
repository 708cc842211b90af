"""What the relay writes to a database. The rules of `postlude.ports.store` hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Fence, Verdict


class Child(msgspec.Struct, frozen=True):
    """A delivery made from a `route` row."""

    event_id: UUID
    destination: str
    lane: int
    key: str | None


class Settling(Protocol):
    """What the relay writes. Every method is fenced: it changes only rows in lanes that the fence still owns."""

    async def start(self, fence: Fence, deliveries: Sequence[Delivery], lease: float) -> set[int]:
        """Commit an attempt before it begins (status claimed, attempts and starts + 1). Gives the seqs started."""

    async def settle_sent(self, fence: Fence, deliveries: Sequence[Delivery]) -> set[int]:
        """Delete the rows and write receipts, in one statement. Gives the seqs that are still there: not ours any
        more. What is gone already was settled before, by us or by an operator."""

    async def record(self, fence: Fence, verdicts: Sequence[Verdict]) -> set[int]:
        """Write verdicts other than sent, each only if its row is still as it was read. Gives the seqs changed."""

    async def forgive(self, destination: str, seqs: Sequence[int]) -> None:
        """Take back one start of each row: its attempt was lost, but its worker did not die of it. Not fenced: it
        only keeps innocent entries from being taken for poison."""

    async def condemn(self, destination: str, delivery: Delivery, error: str) -> bool:
        """Make a dead letter of a delivery whose row is gone: its handler committed the settling half-way. Not
        fenced, for there is no row to fight over. False: it is open there."""

    async def expand(self, fence: Fence, seqs: Sequence[int], children: Sequence[Child]) -> set[int]:
        """Replace rows of the destination `route` by their children, in order. Gives the seqs replaced."""
