"""A batch on its way: begin, deliver, judge, settle. What ends without an outcome is read again, in its place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from postlude.core.delivery import Delivery, Fence, StoredEvent, Verdict
from postlude.core.horizon import Horizon
from postlude.core.intake import Intake
from postlude.core.lifecycle import Status
from postlude.core.outcome import (
    Died,
    Failed,
    Fault,
    Outcome,
    Parked,
    Policy,
    Postponed,
    Rejected,
    Sent,
    Settled,
    Unavailable,
    give_back,
    is_poison,
    judge,
)
from postlude.core.ready import Turn
from postlude.core.redaction import is_redacted
from postlude.errors import DatabaseUnavailable, PostludeError
from postlude.ports.clock import Clock
from postlude.ports.destination import Destination, Entry
from postlude.ports.reading import Reading
from postlude.ports.settling import Settling
from postlude.runtime.breaker import Breaker
from postlude.runtime.outage import Outage
from postlude.runtime.prefetch import Prefetch
from postlude.runtime.watchers import Watchers

log = logging.getLogger("postlude.relay")
T = TypeVar("T")

RETRY_FIRST, RETRY_LONGEST = 0.05, 5.0
_MISSING = Fault("EventMissing", "delivery.event_missing")
_REDACTED = Fault("Redacted", "delivery.redacted")
_POISON = Fault("Poison", "delivery.poison")


class RelayParts(msgspec.Struct, frozen=True):
    """What every relay of a worker shares."""

    reading: Reading
    settling: Settling
    horizon: Horizon
    clock: Clock
    policy: Callable[[StoredEvent | None], Policy]
    watchers: Watchers
    turn: Turn
    outage: Outage
    is_trusted: Callable[[], bool]
    """May this worker still believe in its lease?"""


class Way(msgspec.Struct, frozen=True):
    """What the batches of one destination share."""

    destination: Destination
    intake: Intake
    breaker: Breaker
    prefetch: Prefetch
    parts: RelayParts

    @property
    def name(self) -> str:
        return self.destination.terms.name


class Batch:
    """Some entries of one destination, under the fence that held when they were taken."""

    def __init__(self, way: Way, fence: Fence, deliveries: list[Delivery]) -> None:
        self._way = way
        self._parts = way.parts
        self._intake = way.intake
        self._fence = fence
        self._under_way = {delivery.seq: delivery for delivery in deliveries}
        self._sent: list[Delivery] = []
        self._verdicts: list[tuple[Delivery, Verdict]] = []
        self.began = way.parts.clock.monotonic()
        self._is_broken = False
        self.tried = 0
        self.settled = 0
        self.followed_by: list[tuple[Delivery, StoredEvent]] = []
        self.lost_lanes: dict[int, int] = {}
        """Lanes that turned out to be somebody else's, with the epoch they were ours in."""

    async def deliver(self) -> None:
        """Until every entry has its outcome, in memory."""
        begun = await self._begin(list(self._under_way.values()))
        entries = await self._load(begun)
        self.tried = len(entries)
        outcomes = await self._call(entries)
        for entry, outcome in zip(entries, outcomes, strict=True):
            self._take(entry, outcome)

    async def settle(self) -> None:
        """What was published stays published: the settle is repeated until it is known or the lanes are lost."""
        settling = self._parts.settling
        if self._sent:
            left = await self._persist(lambda: settling.settle_sent(self._fence, self._sent))
            settled = [one for one in self._sent if one.seq not in left]
            self.lost_lanes = {one.lane: self._fence.epochs[one.lane] for one in self._sent if one.seq in left}
            self._conclude(settled)
            self.settled += len(settled)
            self._explain(len(left))
            self._parts.watchers.settled(self._way.name, settled)
        if self._verdicts:
            verdicts = [verdict for _, verdict in self._verdicts]
            changed = await self._persist(lambda: settling.record(self._fence, verdicts))
            recorded = [pair for pair in self._verdicts if pair[1].seq in changed]
            # The others are read again: a lane that was lost and is ours once more would hide them.
            self._conclude([delivery for delivery, _ in recorded])
            self._explain(len(verdicts) - len(changed))
            self._parts.watchers.recorded(self._way.name, recorded)

    def give_up(self) -> list[int]:
        """Whatever has no outcome is read again. Gives the seqs whose attempt was committed and led to nothing."""
        left = list(self._under_way.values())
        for delivery in left:
            self._intake.give_up(delivery, later=True)
        self._under_way.clear()
        return [delivery.seq for delivery in left if delivery.started]

    # ------------------------------------------------------------ delivering

    async def _begin(self, batch: list[Delivery]) -> list[Delivery]:
        """Commit the attempt first where the destination, or a lane after a crash, asks for it."""
        claim_for = self._way.destination.terms.claim_for
        first = [one for one in batch if claim_for is not None or self._intake.is_cautious(one)]
        if not first:
            return batch
        for delivery in filter(is_poison, first):
            delivery.started = True  # no further attempt is counted
            self._judge(delivery, Rejected(_POISON), None)
        able = [one for one in first if not is_poison(one)]
        started = await self._parts.settling.start(self._fence, able, claim_for or 0.0) if able else set()
        for delivery in able:
            if delivery.seq in started:
                delivery.status, delivery.started = Status.claimed, True
                delivery.attempts += 1
        # A refusal means that the lane may be lost: what follows there must not overtake what was refused.
        asked = {one.seq for one in first}
        lost = {one.lane for one in able if one.seq not in started}
        refused = {one.seq for one in batch if one.seq not in started and (one.seq in asked or one.lane in lost)}
        for delivery in batch:
            if delivery.seq in refused and not delivery.started:
                self._give_back(delivery)
        return [one for one in batch if one.seq not in refused]

    async def _load(self, batch: list[Delivery]) -> list[Entry]:
        """Events by id, after the deliveries; one that is missing becomes a dead letter that says so. So does one that
        was redacted since its delivery was read, if that is still there: nothing redacted is ever delivered."""
        events = await self._way.prefetch.take([delivery.event_id for delivery in batch])
        entries = []
        stopped: set[str] = set()
        for delivery in batch:
            event = events.get(delivery.event_id)
            if event is None or is_redacted(event.headers):
                self._judge(delivery, Rejected(_MISSING if event is None else _REDACTED), None)
                stopped.update(filter(None, [delivery.key]))
            elif delivery.key in stopped:
                self._give_back(delivery)
            else:
                entries.append(Entry(delivery, event))
        return entries

    async def _call(self, entries: list[Entry]) -> list[Outcome]:
        if not entries:
            return []
        try:
            return await self._way.destination.deliver(entries, self._fence)
        except PostludeError as error:
            return [Unavailable(Fault(type(error).__name__, error.code))] * len(entries)
        except Exception as error:  # noqa: BLE001 - whatever it is, every entry has an outcome
            return self._broken(entries, error)

    def _broken(self, entries: list[Entry], error: Exception) -> list[Outcome]:
        """An adapter raised what its contract does not know. Many entries: leave it alone for a while, then ask with
        one. One entry: it may be the cause, so it counts, and the destination stays suspected."""
        log.error("%s raised outside its contract", self._way.name, exc_info=error)
        fault = Fault(type(error).__name__, "destination.broken")
        self._open_breaker(fault)
        if len(entries) > 1:
            return [Unavailable(fault)] * len(entries)
        self._is_broken = True
        return [Failed(fault)]

    def _take(self, entry: Entry, outcome: Outcome) -> None:
        delivery, breaker = entry.delivery, self._way.breaker
        match outcome:
            case Sent():
                self._sent.append(delivery)
                breaker.succeed()
            case Settled(followed_by=following):
                self.settled += 1
                self.followed_by += following
                breaker.succeed()
                self._conclude([delivery])
                self._parts.watchers.settled(self._way.name, [delivery])
            case Died(fault=fault):
                breaker.succeed()
                self._conclude([delivery])
                self._parts.watchers.died(self._way.name, delivery, fault)
            case Postponed():
                breaker.succeed()
                self._conclude([delivery])
            case Failed() | Rejected() | Parked():
                if not self._is_broken:
                    breaker.succeed()
                self._judge(delivery, outcome, entry.event)
            case Unavailable(fault=fault):
                self._open_breaker(fault)
                self._give_back(delivery)
            case _:
                self._give_back(delivery)

    def _judge(self, delivery: Delivery, outcome: Failed | Rejected | Parked, event: StoredEvent | None) -> None:
        verdict = judge(delivery, outcome, self._parts.policy(event), chance=self._parts.clock.chance())
        if verdict.blocks:
            self._intake.failed(delivery)
        self._verdicts.append((delivery, verdict))

    def _give_back(self, delivery: Delivery) -> None:
        """Not tried after all. A committed attempt is given back, so that an outage burns none; else it is given up
        before the next batch starts, which may have an entry of the same key."""
        if delivery.started:
            self._intake.failed(delivery)
            self._verdicts.append((delivery, give_back(delivery)))
        elif self._under_way.pop(delivery.seq, None) is not None:
            self._intake.give_up(delivery, later=True)

    def _open_breaker(self, fault: Fault) -> None:
        now = self._parts.clock.monotonic()
        if not self._way.breaker.wait(now):
            delay = self._way.breaker.fail(now, self._parts.clock.chance())
            log.warning("%s is unavailable (%s); next try in %.1f s", self._way.name, fault, delay)
            self._parts.watchers.unavailable(self._way.name)

    # ------------------------------------------------------------ settling

    def _conclude(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if self._under_way.pop(delivery.seq, None) is not None:
                self._intake.concluded(delivery)

    def _explain(self, entries: int) -> None:
        """Rows that did not change: taken over by another worker, or changed by an operator. Never an error."""
        if entries:
            log.info("%s: %d entries had been taken over or changed meanwhile", self._way.name, entries)
            self._parts.watchers.overtaken(self._way.name, entries)

    async def _persist(self, write: Callable[[], Awaitable[T]]) -> T:
        delay = RETRY_FIRST
        while True:
            try:
                return await write()
            except DatabaseUnavailable as error:
                if not self._parts.is_trusted():
                    raise
                self._parts.outage.report(f"{self._way.name}: the settle waits", error)
            await asyncio.sleep(delay * (0.5 + self._parts.clock.chance()))
            delay = min(delay * 2, RETRY_LONGEST)
