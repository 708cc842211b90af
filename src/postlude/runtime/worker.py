"""A worker: one identity, its relays, its lease, its duties. It reconnects for ever and stops within a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec

from postlude.core.delivery import StoredEvent
from postlude.core.horizon import Horizon
from postlude.core.outcome import Policy
from postlude.core.ready import Turn
from postlude.errors import DatabaseUnavailable
from postlude.ports.clock import Clock
from postlude.ports.destination import Destination
from postlude.ports.store import Store
from postlude.runtime.apart import apart
from postlude.runtime.batch import RelayParts
from postlude.runtime.consuming import Consuming
from postlude.runtime.duties.duty import Duty
from postlude.runtime.outage import Outage
from postlude.runtime.ownership import Buried, Holder, Sharing
from postlude.runtime.relay import Relay
from postlude.runtime.renewal import Renewal
from postlude.runtime.watch import Watch
from postlude.runtime.watchers import Watchers

log = logging.getLogger("postlude.worker")
BEAT = 0.25

FAREWELL = 3.0
"""Of the shutdown deadline, kept for giving the lanes back."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker behaves."""

    lease: float = 15.0
    stall: float = 60.0
    poll_min: float = 0.005
    poll_max: float = 0.25
    shutdown_timeout: float = 30.0
    tick: float = 1.0


class Worker:
    def __init__(
        self,
        store: Store,
        destinations: Sequence[Destination],
        duties: Sequence[Duty],
        policy: Callable[[StoredEvent | None, str], Policy],
        *,
        clock: Clock,
        watchers: Watchers,
        options: WorkerOptions,
        consumers: Sequence[Consuming] = (),
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._clock = clock
        self._options = options
        self._duties = duties
        self._beat = clock.monotonic()
        self._renewal = Renewal(store.ownership, clock, lease=options.lease, is_alive=self._is_alive)
        self._horizon = Horizon()
        self._turn = Turn()
        self._outage = Outage(clock)
        self.watchers = watchers
        self.relays = {
            destination.terms.name: Relay(destination, self._parts(destination, policy)) for destination in destinations
        }
        self._holders: list[Holder] = [*self.relays.values(), *duties]
        self._watch = Watch(store.reading, self._horizon, self.relays, clock, self._outage)
        self._sharing: Sharing | None = None
        self._tick_now = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.id: UUID | None = None

    def _parts(self, destination: Destination, policy: Callable[[StoredEvent | None, str], Policy]) -> RelayParts:
        name = destination.terms.name
        return RelayParts(
            reading=self._store.reading,
            settling=self._store.settling,
            horizon=self._horizon,
            clock=self._clock,
            policy=lambda event: policy(event, name),
            watchers=self.watchers,
            turn=self._turn,
            outage=self._outage,
            is_trusted=lambda: self._renewal.is_trusted,
        )

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Register, take lanes, begin to renew."""
        self._loop = asyncio.get_running_loop()
        for relay in self.relays.values():
            await relay.destination.open()
        with contextlib.suppress(Buried):  # it was stopped for longer than its lease: the next tick begins again
            await self._register()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then end within the deadline."""
        loops = [self._beats(), self._watch.run(self._options.poll_min, self._options.poll_max), self._share()]
        loops += [relay.run() for relay in self.relays.values()]
        loops += [duty.run(self.watchers) for duty in self._duties]
        loops += [consumer.run() for consumer in self._consumers]
        async with self._store.listen(self.hint):
            tasks = [asyncio.create_task(_named(loop)) for loop in loops]
            stopped = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._end(tasks)
                stopped.cancel()
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def drain_once(self, limit: int | None = None) -> tuple[int, int]:
        """One pass over what is there to take and over what is due now. Gives the deliveries settled, and how many
        entries were tried and messages taken."""
        self._beat = self._clock.monotonic()
        settled, tried = 0, sum([await consumer.visit() for consumer in self._consumers])
        await self._watch.look()
        for relay in self.relays.values():
            before = relay.tried
            left = None if limit is None else limit - settled
            settled += await relay.drain_once(left, self._horizon.last)
            tried += relay.tried - before
        return settled, tried

    async def has_due(self) -> bool:
        """Is anything due that it may work on?"""
        served = [name for name, relay in self.relays.items() if not relay.paused]
        return await self._store.reading.has_due(served)

    async def tick(self) -> None:
        """Bury, share, claim: once. A worker that was taken for dead begins again."""
        self._beat = self._clock.monotonic()
        try:
            if self._renewal.is_buried:
                raise Buried
            if self._sharing is not None:
                await self._sharing.tick()
        except Buried:
            await self._rise()

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what is under way, give the lanes back, end. All of it within the deadline."""
        deadline = self._options.shutdown_timeout if timeout is None else timeout
        end = time.monotonic() + deadline
        for consumer in self._consumers:
            consumer.stop()
        for relay in self.relays.values():
            relay.stop()
        patience = deadline - min(FAREWELL, deadline / 2)
        leaving = [consumer.leave(patience) for consumer in self._consumers]
        await asyncio.gather(*leaving, *(relay.quiesce(patience) for relay in self.relays.values()))
        with contextlib.suppress(DatabaseUnavailable, TimeoutError):  # three stops are no three deaths
            async with asyncio.timeout(_left(end) / 2):
                await asyncio.gather(*(relay.forgive() for relay in self.relays.values()))
        await apart(lambda: self._renewal.stop(_left(end) / 2))
        with contextlib.suppress(DatabaseUnavailable, TimeoutError):  # the lease ends by itself
            async with asyncio.timeout(_left(end)):
                if self.id is not None:
                    await self._store.ownership.leave(self.id)
                    await self._store.hint()
        for relay in self.relays.values():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_left(end)):
                    await relay.destination.close()
        self.watchers.close()

    def hint(self) -> None:
        """Somebody appended, here or elsewhere; safe from any thread."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._watch.hint()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watch.hint)

    # ------------------------------------------------------------ inside

    async def _register(self) -> None:
        self.id = uuid4()
        sent = self._clock.monotonic()
        self._beat = sent
        serves = {holder.name: (holder.kind, holder.lanes_in_all) for holder in self._holders}
        name = f"{platform.node()}:{os.getpid()}"
        await self._store.ownership.register(self.id, name, serves, self._options.lease)
        self._renewal.start(self.id, sent)
        self._sharing = Sharing(self._store.ownership, self.id, self._holders)
        await self._sharing.tick()

    async def _share(self) -> None:
        while True:
            try:
                await self.tick()
            except DatabaseUnavailable as error:
                self._outage.report("ownership", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.tick):  # wait_for of Python 3.11 may swallow a cancellation
                    await self._tick_now.wait()
            self._tick_now.clear()

    async def _rise(self) -> None:
        """Buried: forget everything and begin again under a new id."""
        log.warning("this worker was taken for dead and lost its lanes; it begins again")
        self._renewal.distrust()
        for holder in self._holders:
            holder.disown(set(range(holder.lanes_in_all)))
        with contextlib.suppress(DatabaseUnavailable, Buried):  # the next tick tries again
            await self._register()

    async def _beats(self) -> None:
        while True:
            self._beat = self._clock.monotonic()
            await asyncio.sleep(BEAT)

    def _is_alive(self) -> bool:
        """Asked by the renewing thread: does the loop turn, and does every delivery end in time?"""
        now = self._clock.monotonic()
        return now - self._beat < self._options.stall and not any(relay.is_hung(now) for relay in self.relays.values())

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        for relay in self.relays.values():
            relay.stop()
        await self.stop()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=5)


async def _named(loop: Coroutine[Any, Any, Any]) -> None:
    await loop


def _left(end: float) -> float:
    """Until the deadline. Real time, whatever clock tests give; a moment is always left for a server that answers."""
    return max(0.2, end - time.monotonic())
