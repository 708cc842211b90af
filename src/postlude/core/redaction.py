"""Redacting a data subject in our own tables: which events may lose their content now, and what must finish first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from postlude.core.lifecycle import Status

HEADER = "postlude-redacted"
"""Of events without their content. Nobody else can set it, and nothing with it is ever delivered."""
SAGA = "saga:"
"""What is on its way to a process belongs to the process, and is not taken from it."""


def is_redacted(headers: Mapping[str, str]) -> bool:
    return HEADER in headers


class OpenDelivery(msgspec.Struct, frozen=True):
    """A delivery of an event that is to be redacted. Not free: somebody is at it right now."""

    seq: int
    event_id: UUID
    destination: str
    status: Status
    is_free: bool

    def holds(self, *, discards: bool) -> bool:
        """Must it finish first? A dead letter never: redacted, nobody could requeue it."""
        if not self.is_free or self.status is Status.claimed:
            return True
        return self.status is not Status.dead and (not discards or self.destination.startswith(SAGA))


class Steps(msgspec.Struct, frozen=True):
    """What is done in one transaction, and what is waited for: deliveries by seq, sagas by id."""

    redact: list[UUID]
    discard: list[int]
    sagas: set[UUID]
    waiting_deliveries: set[int]
    waiting_sagas: set[UUID]


def steps_of(
    event_ids: Sequence[UUID],
    deliveries: Iterable[OpenDelivery],
    sagas: Iterable[tuple[UUID, UUID]],
    held: Collection[UUID],
    *,
    discards: bool,
) -> Steps:
    """`sagas` are pairs of an event and a process it belongs to; those `held` have not ended. An event that has to wait
    keeps its content, and with it the way to find its sagas again."""
    open_of: defaultdict[UUID, list[OpenDelivery]] = defaultdict(list)
    for one in deliveries:
        open_of[one.event_id].append(one)
    sagas_of: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for event_id, saga_id in sagas:
        sagas_of[event_id].add(saga_id)
    steps = Steps([], [], set(), set(), set())
    for event_id in event_ids:
        _take(steps, event_id, open_of[event_id], sagas_of[event_id], held, discards=discards)
    return steps


def _take(
    steps: Steps,
    event_id: UUID,
    deliveries: Sequence[OpenDelivery],
    sagas: set[UUID],
    held: Collection[UUID],
    *,
    discards: bool,
) -> None:
    holding = {one.seq for one in deliveries if one.holds(discards=discards)}
    living = sagas & set(held)
    steps.waiting_deliveries.update(holding)
    steps.waiting_sagas.update(living)
    if living or (holding and not discards):
        return
    steps.discard.extend(one.seq for one in deliveries if one.seq not in holding)
    if not holding:
        steps.redact.append(event_id)
        steps.sagas.update(sagas)
