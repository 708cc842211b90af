"""The life of a delivery: one table says what may become what, and what holds its key.

The same table is written into the database as a trigger; a test walks both.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where a delivery stands. `sent` and `discarded` are outcomes: the row is gone and a receipt says so."""

    pending = "pending"
    claimed = "claimed"
    failed = "failed"
    scheduled = "scheduled"
    dead = "dead"
    sent = "sent"
    discarded = "discarded"

    def can_become(self, other: Status) -> bool:
        """Is the transition from this status to the other legal?"""
        return other in TRANSITIONS[self]

    def next(self) -> frozenset[Status]:
        """Everything this status may become."""
        return TRANSITIONS[self]

    @property
    def is_open(self) -> bool:
        """Is there still a delivery row?"""
        return self not in OUTCOMES


OUTCOMES = frozenset({Status.sent, Status.discarded})
OPEN = tuple(status for status in Status if status not in OUTCOMES)
BIRTHS = frozenset({Status.pending, Status.claimed, Status.scheduled})

_TRIED = {Status.claimed, Status.failed, Status.scheduled, Status.dead, Status.sent}

# `pending` is a birth state: nothing ever returns to it, so a floor that has passed a row never hides it.
TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.pending: frozenset(_TRIED | {Status.discarded}),
    Status.claimed: frozenset(_TRIED),
    Status.failed: frozenset(_TRIED | {Status.discarded}),
    Status.scheduled: frozenset(_TRIED | {Status.discarded}),
    Status.dead: frozenset({Status.failed, Status.discarded}),
    Status.sent: frozenset(),
    Status.discarded: frozenset(),
}


def blocks(status: Status, key: str | None, *, on_dead_blocks: bool = False) -> bool:
    """Does a delivery in this status hold the later ones of its key?

    Scheduled ones never do: a delay takes an entry out of its key's order.
    """
    if key is None:
        return False
    if status is Status.dead:
        return on_dead_blocks
    return status in (Status.claimed, Status.failed)


def mermaid() -> str:
    """The lifecycle as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {status}" for status in Status if status in BIRTHS]
    for status in Status:
        lines += [f"    {status} --> {other}" for other in Status if other in TRANSITIONS[status]]
    lines += [f"    {status} --> [*]" for status in Status if status in OUTCOMES]
    return "\n".join(lines)
