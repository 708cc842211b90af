"""Ownership: workers, their leases, and who has which lane."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from postlude.core.delivery import Fence
from postlude.ports.store import Store
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES, LEASE, TO, Arranged, StoreUnderTest, event


class OwnershipContract(StoreUnderTest):
    async def test_a_registered_worker_lives(self, given: Arranged) -> None:
        worker = uuid4()
        await given.store.ownership.register(worker, "host-1", {TO: ("broker", 4), "shop": ("handler", 2)}, LEASE)
        (live,) = await given.store.ownership.live_workers()
        assert (live.id, live.name, live.stopping, live.destinations) == (worker, "host-1", False, (TO, "shop"))
        assert live.version
        assert 0 < (live.lease_until - live.started_at).total_seconds() <= LEASE + 1
        owners = {row["destination"]: row["lanes"] for row in await given.store.records.lane_owners()}
        assert owners == {TO: 4, "shop": 2}
        kinds = {row["name"]: row["kind"] for row in await given.store.records.destinations()}
        assert kinds == {TO: "broker", "shop": "handler"}

    async def test_workers_stand_by_start_time(self, given: Arranged) -> None:
        workers = [await given.register() for _ in range(4)]
        assert [live.id for live in await given.store.ownership.live_workers()] == workers

    async def test_registering_again_changes_no_lane(self, given: Arranged) -> None:
        fence = await given.own()
        await given.register()
        (row,) = await given.store.records.lane_owners()
        assert (row["lanes"], row["owned"]) == (LANES, len(fence.epochs))

    async def test_a_lease_ends_unless_it_is_renewed(self, given: Arranged, clock: ManualClock) -> None:
        worker = await given.register()
        async with given.store.ownership.lease() as lease:
            clock.advance(LEASE - 1)
            assert await lease.renew(worker, LEASE)
            clock.advance(LEASE - 1)
            assert await given.store.ownership.bury_workers() == 0
            assert [live.id for live in await given.store.ownership.live_workers()] == [worker]
            clock.advance(2)
            assert await given.store.ownership.live_workers() == []
            await given.store.ownership.bury_workers()
            assert not await lease.renew(worker, LEASE)

    async def test_a_lease_is_renewed_from_another_thread(self, given: Arranged) -> None:
        worker = await given.register()
        assert await asyncio.to_thread(asyncio.run, _renew(given.store, worker))
        assert not await asyncio.to_thread(asyncio.run, _renew(given.store, uuid4()))

    async def test_claiming_takes_free_lanes_with_a_new_epoch(self, given: Arranged) -> None:
        worker = await given.register()
        first = await given.store.ownership.claim_lanes(worker, TO, 3)
        assert len({lane.lane for lane in first}) == 3
        assert all(lane.epoch == 1 and lane.cautious_to == 0 for lane in first)
        rest = await given.store.ownership.claim_lanes(worker, TO, 100)
        assert {lane.lane for lane in first + rest} == set(range(LANES))
        assert await given.store.ownership.claim_lanes(worker, TO, 1) == []

    async def test_nothing_is_claimed_when_nothing_is_asked(self, given: Arranged) -> None:
        worker = await given.register()
        assert await given.store.ownership.claim_lanes(worker, TO, 0) == []
        assert await given.store.ownership.claim_lanes(worker, "elsewhere", 5) == []

    async def test_who_is_not_alive_claims_nothing(self, given: Arranged, clock: ManualClock) -> None:
        worker = await given.register()
        assert await given.store.ownership.claim_lanes(uuid4(), TO, 3) == []
        clock.advance(LEASE + 1)
        assert await given.store.ownership.claim_lanes(worker, TO, 3) == []

    async def test_who_is_stopping_claims_nothing(self, given: Arranged) -> None:
        worker = await given.register()
        await given.run("UPDATE {}postlude_worker SET stopping = true")
        assert await given.store.ownership.claim_lanes(worker, TO, 3) == []

    async def test_a_lane_never_has_two_owners(self, given: Arranged, other: Store) -> None:
        workers = [await given.register(lanes=64) for _ in range(4)]
        claims = await asyncio.gather(
            *(
                store.ownership.claim_lanes(worker, TO, 5)
                for worker, store in zip(workers, (given.store, other) * 2, strict=True)
                for _ in range(3)
            )
        )
        lanes = [lane.lane for claim in claims for lane in claim]
        assert len(lanes) == len(set(lanes)) > 0

    async def test_released_lanes_are_free_with_a_new_epoch(self, given: Arranged) -> None:
        fence = await given.own(count=LANES)
        given_back = {lane: fence.epochs[lane] for lane in (1, 2)}
        await given.store.ownership.release_lanes(Fence(fence.worker, TO, given_back))
        again = await given.own(count=LANES)
        assert again.epochs == {1: 3, 2: 3}

    async def test_the_database_says_what_a_worker_owns(self, given: Arranged) -> None:
        worker = await given.register(TO, "shop")
        mine, shop = await given.own(worker=worker, count=3), await given.own("shop", worker=worker, count=1)
        await given.own(count=2)
        assert await given.store.ownership.owned_lanes(worker) == {TO: mine.epochs, "shop": shop.epochs}
        await given.store.ownership.release_lanes(mine)
        assert await given.store.ownership.owned_lanes(worker) == {"shop": shop.epochs}
        assert await given.store.ownership.owned_lanes(uuid4()) == {}

    async def test_only_the_owner_releases_and_only_its_epoch(self, given: Arranged) -> None:
        fence = await given.own(count=LANES)
        await given.store.ownership.release_lanes(Fence(uuid4(), TO, fence.epochs))
        await given.store.ownership.release_lanes(Fence(fence.worker, TO, dict.fromkeys(fence.epochs, 7)))
        assert (await given.own(count=LANES)).epochs == {}

    async def test_a_burial_frees_lanes_and_makes_their_next_owner_cautious(
        self, given: Arranged, clock: ManualClock
    ) -> None:
        await given.append(event())
        last = await given.store.reading.last_seq()
        await given.own(count=2)
        clock.advance(LEASE + 1)
        assert await given.store.ownership.bury_workers() == 2
        assert await given.store.ownership.bury_workers() == 0
        await given.append(event())
        claimed = await given.store.ownership.claim_lanes(await given.register(), TO, LANES)
        assert sorted((lane.epoch, lane.cautious_to) for lane in claimed) == [(1, 0)] * (LANES - 2) + [(3, last)] * 2
        (row,) = await given.store.records.lane_owners()
        assert row["crashes"] == 2

    async def test_a_live_worker_is_not_buried(self, given: Arranged, clock: ManualClock) -> None:
        dead = await given.own(count=2)
        clock.advance(LEASE - 1)
        living = await given.own(count=2)
        clock.advance(2)
        assert await given.store.ownership.bury_workers() == len(dead.epochs)
        assert [live.id for live in await given.store.ownership.live_workers()] == [living.worker]
        (row,) = await given.store.records.lane_owners()
        assert row["owned"] == len(living.epochs)

    async def test_leaving_frees_lanes_and_nobody_is_cautious(self, given: Arranged) -> None:
        await given.append(event())
        fence = await given.own(count=LANES)
        await given.store.ownership.leave(fence.worker)
        await given.store.ownership.leave(fence.worker)
        assert await given.store.ownership.live_workers() == []
        claimed = await given.store.ownership.claim_lanes(await given.register(), TO, LANES)
        assert [lane.cautious_to for lane in claimed] == [0] * LANES
        assert {lane.epoch for lane in claimed} == {3}

    async def test_the_lanes_of_a_ghost_are_free(self, given: Arranged) -> None:
        await given.own(count=LANES)
        await given.run("DELETE FROM {}postlude_worker")
        assert len((await given.own(count=LANES)).epochs) == LANES

    async def test_lanes_belong_to_one_destination(self, given: Arranged) -> None:
        worker = await given.register(TO, "shop")
        await given.store.ownership.claim_lanes(worker, TO, LANES)
        assert len(await given.store.ownership.claim_lanes(worker, "shop", LANES)) == LANES


async def _renew(store: Store, worker: UUID) -> bool:
    async with store.ownership.lease() as lease:
        return await lease.renew(worker, LEASE)
