"""Upkeep: what retention takes and what it leaves."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from uuid import UUID

from postlude.core.lifecycle import Status
from postlude.ports.store import Filter
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, event

FIRST = UUID(int=0)
HOUR = 3600.0


class UpkeepContract(StoreUnderTest):
    async def test_settled_events_and_receipts_go_after_their_time(self, given: Arranged, clock: ManualClock) -> None:
        one = event()
        await given.append(one)
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        assert await self._prune(given) == 0
        clock.advance(25 * HOUR)
        assert await self._prune(given) == 2
        assert await given.store.records.story(one.event_id) is None
        assert await given.store.records.list_settled(Filter(), after=(FIRST, 0), limit=10) == []
        assert await self._prune(given) == 0

    async def test_events_that_are_still_open_stay_with_their_receipts(
        self, given: Arranged, clock: ManualClock
    ) -> None:
        one = event(to=("broker", "shop"))
        await given.append(one)
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        clock.advance(25 * HOUR)
        assert await self._prune(given) == 0
        story = await given.store.records.story(one.event_id)
        assert story is not None
        assert len(story.receipts) == 1

    async def test_pruning_goes_in_bounded_batches(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(*(event(to=()) for _ in range(5)))
        clock.advance(25 * HOUR)
        assert [await self._prune(given, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_zero_hours_keep_for_ever(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(event(to=()), event())
        await given.fail(await given.own(), *await given.pending(), status=Status.dead)
        clock.advance(9999 * HOUR)
        assert await self._prune(given, events_hours=0, dead_hours=0) == 0

    async def test_dead_letters_go_only_when_asked_and_are_audited(self, given: Arranged, clock: ManualClock) -> None:
        one = event()
        await given.append(one)
        await given.fail(await given.own(), *await given.pending(), status=Status.dead)
        clock.advance(25 * HOUR)
        assert await self._prune(given, events_hours=0) == 0
        assert await self._prune(given, events_hours=0, dead_hours=48) == 0
        assert await self._prune(given, events_hours=0, dead_hours=24) == 1
        assert await given.seqs() == []
        (receipt,) = await given.store.records.list_settled(Filter(), after=(FIRST, 0), limit=10)
        assert (receipt["outcome"], receipt["actor"]) == ("discarded", "duty:retention")
        (audit,) = await given.store.records.audits(target=str(one.event_id), limit=10)
        assert (audit["action"], audit["actor"]) == ("discard", "duty:retention")

    async def test_partitions_are_made_once(self, given: Arranged) -> None:
        await given.store.upkeep.make_partitions(2)
        assert await given.store.upkeep.make_partitions(2) == []
        await given.append(event())
        await given.store.upkeep.retire_partitions(24)
        assert len(await given.pending()) == 1

    async def _prune(self, given: Arranged, *, events_hours: int = 24, dead_hours: int = 0, limit: int = 100) -> int:
        return await given.store.upkeep.prune(events_hours=events_hours, dead_hours=dead_hours, limit=limit)
