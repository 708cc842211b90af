"""How calls end: the record, the settle and what is left to do are one transaction, and their commit is made sure of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from postlude.calls.resolvers import Registered
from postlude.core.delivery import Delivery, Fence
from postlude.core.outcome import SETTLED, Outcome
from postlude.core.statement import Script
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import Calls, CallScripts
from postlude.ports.clock import Clock
from postlude.ports.scripts import Scripts
from postlude.runtime.faults import Taken
from postlude.runtime.lending import CALL_MARGIN, Lending


class CallParts(msgspec.Struct, frozen=True):
    """What the destinations of all resolvers share."""

    calls: Calls
    call_scripts: CallScripts
    scripts: Scripts
    seal: Callable[[UUID, Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]
    """Of secrets, where the app has keys."""
    lending: Callable[[str, str], Lending]
    """For settling, in transactions of our own."""
    clock: Clock
    first_delay: float
    """Seconds: nothing is parked for less."""
    budget: int
    """Attempts, even if none of them led to an outcome."""


class Ending(msgspec.Struct, frozen=True):
    """A delivery that is over, with its record."""

    delivery: Delivery
    fence: Fence
    record: AuditEntry
    needed: str
    """The part of the secret that goes with it."""
    following: Callable[[], Script[None]] | None = None
    """What is left to do."""


class CallEnds:
    """Of one resolver."""

    def __init__(self, registered: Registered, parts: CallParts) -> None:
        self._parts = parts
        self._lending = parts.lending(registered.name, registered.destination)

    async def settle(self, ending: Ending) -> Outcome:
        tries = 0

        async def settle(handle: Any) -> None:
            nonlocal tries
            tries += 1
            # The record first: the completion that the settling may bring about comes after it in the trail.
            await self._lending.play(handle, self._parts.scripts.audit(ending.record))
            await self._lending.settle(handle, ending.delivery, ending.fence, CALL_MARGIN)
            if ending.following is not None:
                await self._lending.play(handle, ending.following())

        try:
            await self._lending.persist(settle)
        except Taken:
            if tries == 1 or ending.needed in await self._parts.calls.secrets(ending.delivery.event_id):
                raise
            # It is over: an earlier commit was made, and only its answer was lost.
        return SETTLED
