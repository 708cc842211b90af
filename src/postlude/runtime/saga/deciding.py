"""What a saga decides, in transactions that have no code of the user's in them but the saga's own hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from postlude.core.delivery import Fence, StoredEvent
from postlude.core.outcome import Fault, Policy
from postlude.core.saga.instance import Instance
from postlude.core.saga.signal import Signal, SignalDied
from postlude.ports.destination import Entry
from postlude.ports.sagas import Sagas
from postlude.ports.settling import Settling
from postlude.runtime.faults import Taken
from postlude.runtime.lending import CALL_MARGIN, Lending, LendingParts
from postlude.runtime.opening import plain
from postlude.runtime.saga.events import Arrivals
from postlude.saga.applying import Applied, Applying, Stuck
from postlude.saga.compiled import Compiled
from postlude.saga.messages import destination_of


class SagaParts(msgspec.Struct, frozen=True):
    """What the sagas of a database share."""

    lending: LendingParts
    applying: Applying
    sagas: Sagas
    settling: Settling
    policy: Callable[[StoredEvent | None, str], Policy]
    told: Callable[[list[Stuck]], None]
    """Tells of sagas that are stuck, after the commit."""
    learn_time: Callable[[], Awaitable[None]]


class Unwanted(Exception):
    """Nobody wants it: what was done is rolled back, and nothing is said."""


class Deciding:
    """For one saga. Each method is one transaction: settle, look, decide, write."""

    def __init__(self, made: Compiled, parts: SagaParts) -> None:
        self.made = made
        self.parts = parts
        self.applying = parts.applying
        self.arrivals = Arrivals(made, parts.applying)
        name = destination_of(made.definition.name)
        self.lending = Lending(name, name, parts.lending)

    async def settle(self, entry: Entry, fence: Fence) -> None:
        """And nothing else."""

        async def settle(handle: Any) -> None:
            await self.lending.settle(handle, entry.delivery, fence, CALL_MARGIN)

        await self.lending.bookkeeping(settle)

    async def decide(
        self, entry: Entry, fence: Fence | None, signal: Signal, events: Sequence[object] = ()
    ) -> Applied | None:
        """No fence: the delivery has its end already."""

        async def decide_it(handle: Any) -> Applied | None:
            instance = await (self.load(handle, entry) if fence is None else self.take(handle, entry, fence))
            return None if instance is None else await self.signal(handle, instance, signal, events)

        return self.tell(await self.lending.bookkeeping(decide_it))

    async def arrive(self, entry: Entry, fence: Fence) -> Applied | None:
        """A trigger, or what a run waits for."""
        event = self.arrivals.read(await plain(entry.event, self.parts.lending.open))

        async def arrive(handle: Any) -> Applied | None:
            await self.lending.settle(handle, entry.delivery, fence, CALL_MARGIN)
            return _written(await self.arrivals.take(handle, entry, event))

        return self.tell(await self.lending.bookkeeping(arrive))

    async def bury(self, entry: Entry, fence: Fence, fault: Fault) -> bool:
        """A dead letter, and the saga is stuck on it. False: nobody knows which run it is for."""
        text = msgspec.json.encode(fault).decode()

        async def bury(handle: Any) -> Applied | None:
            if not await self.applying.play(handle, self.applying.scripts.bury(fence, entry.delivery, text)):
                raise Taken
            instance = await self.arrivals.meant(handle, entry)
            if instance is None:
                raise Unwanted
            return await self.signal(handle, instance, SignalDied(fault.kind))

        try:
            self.tell(await self.lending.bookkeeping(bury))
        except Unwanted:
            return False
        return True

    # ------------------------------------------------------------ inside a transaction

    async def take(self, handle: Any, entry: Entry, fence: Fence, idle: float = CALL_MARGIN) -> Instance | None:
        """Settle, and read the run whose work or deadline it is."""
        saga_id = entry.event.saga_id
        if saga_id is None:
            await self.lending.settle(handle, entry.delivery, fence, idle)
            return None
        take = self.applying.scripts.take(fence, entry.delivery, idle, saga_id)
        settled, instance = await self.applying.play(handle, take)
        if not settled:
            raise Taken
        return instance

    async def load(self, handle: Any, entry: Entry, *, lock: bool = False) -> Instance | None:
        """The run whose work or deadline it is."""
        if entry.event.saga_id is None:
            return None
        return await self.applying.play(handle, self.applying.scripts.get(entry.event.saga_id, lock=lock))

    async def signal(
        self, handle: Any, instance: Instance, signal: Signal, events: Sequence[object] = ()
    ) -> Applied | None:
        return _written(await self.applying.signal(handle, self.made, instance, signal, events))

    def tell(self, applied: Applied | None) -> Applied | None:
        """After the commit."""
        if applied is not None and applied.stuck:
            self.parts.told(applied.stuck)
        return applied


def _written(applied: Applied | None) -> Applied | None:
    if applied is not None and not applied.written:
        raise Taken
    return applied
