"""Upkeep: what retention takes and what it leaves."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from os import urandom
from uuid import UUID, uuid4

from postlude.core.lifecycle import Status
from postlude.ports.records import Filter
from postlude.ports.upkeep import DutyRun
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LEASE, Arranged, StoreUnderTest, event

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
        assert (audit["old_status"], audit["new_status"]) == ("dead", "discarded")

    async def test_receipts_may_go_before_their_events(self, given: Arranged, clock: ManualClock) -> None:
        settled, still_open = event(), event(to=("broker", "shop"))
        await given.append(settled, still_open)
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        clock.advance(25 * HOUR)
        assert await self._prune(given, events_hours=48, receipts_hours=24) == 1
        story = await given.store.records.story(settled.event_id)
        assert story is not None
        assert story.receipts == []
        kept = await given.store.records.story(still_open.event_id)
        assert kept is not None
        assert len(kept.receipts) == 1, "it belongs to open work"

    async def test_receipts_may_stay_after_their_events(self, given: Arranged, clock: ManualClock) -> None:
        one = event()
        await given.append(one)
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        clock.advance(25 * HOUR)
        assert await self._prune(given, events_hours=24, receipts_hours=0) == 1
        assert await given.store.records.story(one.event_id) is None
        (receipt,) = await given.store.records.list_settled(Filter(), after=(FIRST, 0), limit=10)
        assert (receipt["event_id"], receipt["outcome"], receipt["type"]) == (one.event_id, "sent", None)

    async def test_duties_tell_their_owner_and_what_came_of_them(self, given: Arranged) -> None:
        upkeep = given.store.upkeep
        assert await upkeep.duties() == []
        worker = uuid4()
        await given.store.ownership.register(worker, "host:1", {"duty:x": ("duty", 1)}, LEASE)
        (known,) = await upkeep.duties()
        assert (known["name"], known["owner"], known["ran_at"]) == ("duty:x", None, None)
        await given.own("duty:x", worker=worker)
        await upkeep.record_duty("duty:x", DutyRun(rows=3, seconds=0.5, error="Boom", next_in=60.0))
        await upkeep.record_duty("duty:x", DutyRun(rows=4, seconds=0.25, next_in=60.0))
        (told,) = await upkeep.duties()
        assert (told["owner"], told["rows"], told["seconds"], told["error"]) == ("host:1", 4, 0.25, None)
        assert round((told["next_at"] - told["ran_at"]).total_seconds()) == 60
        await upkeep.record_duty("duty:x", DutyRun(rows=0, seconds=0.0))
        assert (await upkeep.duties())[0]["next_at"] is None

    async def test_disk_use_names_every_table(self, given: Arranged) -> None:
        await given.append(*(event(payload=urandom(5000)) for _ in range(20)))
        used = {one.name: one for one in await given.store.upkeep.disk_use()}
        assert {"postlude_event", "postlude_delivery", "postlude_receipt", "postlude_operation"} <= used.keys()
        assert (used["postlude_event"].bytes or 0) >= 100_000
        assert all(one.bytes for one in used.values())
        assert used["postlude_delivery"].partitions == 0
        assert next(iter(used)) == "postlude_event", "the largest first"

    async def test_partitions_are_made_once(self, given: Arranged) -> None:
        await given.store.upkeep.make_partitions(2)
        assert await given.store.upkeep.make_partitions(2) == []
        await given.append(event())
        await given.store.upkeep.retire_partitions(24)
        assert len(await given.pending()) == 1

    async def _prune(
        self,
        given: Arranged,
        *,
        events_hours: int = 24,
        receipts_hours: int | None = None,
        dead_hours: int = 0,
        limit: int = 100,
    ) -> int:
        return await given.store.upkeep.prune(
            events_hours=events_hours, receipts_hours=receipts_hours, dead_hours=dead_hours, limit=limit
        )
