"""The inbox: seen once, by each consumer, for as long as it is kept."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, Undo, undone

HOUR = 3600.0


class InboxContract(StoreUnderTest):
    async def test_the_first_time_is_the_only_one(self, given: Arranged) -> None:
        one, other = uuid4(), uuid4()
        assert [await _once(given, "billing", each) for each in (one, one, other)] == [True, False, True]

    async def test_consumers_do_not_know_of_each_other(self, given: Arranged) -> None:
        one = uuid4()
        assert await _once(given, "billing", one)
        assert await _once(given, "shipping", one)

    async def test_what_was_rolled_back_was_not_seen(self, given: Arranged) -> None:
        one = uuid4()
        with undone():
            async with given.store.transaction() as tx:
                assert await given.adapter.play(tx, given.store.scripts.once("billing", one))
                raise Undo
        assert await _once(given, "billing", one)

    async def test_of_two_at_once_one_is_first(self, given: Arranged) -> None:
        one = uuid4()
        for _ in range(5):
            answers = await asyncio.gather(*(_once(given, "billing", one) for _ in range(4)))
            assert sum(answers) <= 1
        assert not await _once(given, "billing", one)

    async def test_it_is_forgotten_after_its_time_in_bounded_batches(self, given: Arranged, clock: ManualClock) -> None:
        ids = [uuid4() for _ in range(5)]
        for one in ids:
            await _once(given, "billing", one)
        assert await _prune(given, hours=2) == 0
        clock.advance(3 * HOUR)
        assert await _prune(given, hours=0) == 0
        assert [await _prune(given, hours=2, limit=3) for _ in range(3)] == [3, 2, 0]
        assert await _once(given, "billing", ids[0])


async def _once(given: Arranged, consumer: str, event_id: UUID) -> bool:
    async with given.store.transaction() as tx:
        return await given.adapter.play(tx, given.store.scripts.once(consumer, event_id))


async def _prune(given: Arranged, *, hours: int, limit: int = 100) -> int:
    return await given.store.upkeep.prune(events_hours=0, dead_hours=0, inbox_hours=hours, limit=limit)
