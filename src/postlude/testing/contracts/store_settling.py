"""Settling: what a relay may write, and what its fence forbids."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec

from postlude.core.delivery import Delivery, Fence
from postlude.core.lanes import ROUTE
from postlude.core.lifecycle import Status
from postlude.ports.records import Filter
from postlude.ports.settling import Child
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LEASE, Arranged, StoreUnderTest, Undo, event, undone, verdict

_ALL = Filter()


class SettlingContract(StoreUnderTest):
    async def test_an_attempt_is_committed_before_it_starts(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(event("a"), event())
        entries = await given.pending()
        started = await given.store.settling.start(await given.own(), entries, 5)
        assert started == {one.seq for one in entries}
        assert await given.pending() == []
        clock.advance(6)
        assert [(one.status, one.attempts, one.starts) for one in await given.due()] == [(Status.claimed, 1, 1)] * 2

    async def test_a_start_that_was_lost_is_forgiven_but_never_below_zero(
        self, given: Arranged, clock: ManualClock
    ) -> None:
        await given.append(event(), event())
        fence, entries = await given.own(), await given.pending()
        await given.store.settling.start(fence, entries[:1], 5)
        for _ in range(2):
            await given.store.settling.forgive(fence.destination, [one.seq for one in entries])
        clock.advance(6)
        assert [(one.attempts, one.starts) for one in await given.due()] == [(1, 0)]
        assert [(one.attempts, one.starts) for one in await given.pending()] == [(0, 0)]

    async def test_of_many_only_what_is_as_it_was_read_is_started(self, given: Arranged) -> None:
        await given.append(event(), event())
        fence, (one, two) = await given.own(), await given.pending()
        await given.fail(fence, one)
        assert await given.store.settling.start(fence, [one, two], 5) == {two.seq}

    async def test_status_and_attempts_must_both_be_as_they_were_read(self, given: Arranged) -> None:
        await given.append(event())
        fence, (entry,) = await given.own(), await given.pending()
        await given.fail(fence, entry)
        (now,) = await given.due()
        for stale in (
            msgspec.structs.replace(now, status=Status.scheduled),
            msgspec.structs.replace(now, attempts=now.attempts + 1),
        ):
            assert await given.store.settling.start(fence, [stale], 5) == set()
            assert await given.store.settling.record(fence, [verdict(stale, Status.dead)]) == set()
            async with given.store.transaction() as tx:
                assert not await given.adapter.play(tx, given.store.scripts.settle_handled(fence, stale, 1.0))
        assert await given.due() == [now]

    async def test_sent_leaves_a_receipt_and_no_work(self, given: Arranged) -> None:
        first, second = event(), event()
        await given.append(first, second)
        fence, (fresh, claimed) = await given.own(), await given.pending()
        await given.store.settling.start(fence, [claimed], 5)
        assert await given.store.settling.settle_sent(fence, [fresh, claimed]) == set()
        assert await given.seqs() == []
        for one, entry in ((first, fresh), (second, claimed)):
            story = await given.store.records.story(one.event_id)
            assert story is not None
            (receipt,) = story.receipts
            assert (receipt["outcome"], receipt["attempts"], receipt["seq"]) == ("sent", 1, entry.seq)
            assert (receipt["worker"], receipt["destination"]) == (fence.worker, fence.destination)

    async def test_what_is_sent_but_not_ours_stays_and_is_told(self, given: Arranged) -> None:
        await given.append(event(lane=0), event(lane=1))
        fence, (mine, other) = await given.own(), await given.pending()
        partly = Fence(fence.worker, fence.destination, {mine.lane: fence.epochs[mine.lane]})
        assert await given.store.settling.settle_sent(partly, [mine, other]) == {other.seq}
        assert await given.seqs() == [other.seq]

    async def test_settling_twice_writes_one_receipt(self, given: Arranged) -> None:
        one = event()
        await given.append(one)
        fence, entries = await given.own(), await given.pending()
        await given.store.settling.settle_sent(fence, entries)
        await given.store.settling.settle_sent(fence, entries)
        story = await given.store.records.story(one.event_id)
        assert story is not None
        assert len(story.receipts) == 1

    async def test_lanes_of_one_fence_have_epochs_of_their_own(self, given: Arranged) -> None:
        await given.append(*(event(lane=lane) for lane in range(4)))
        old = await given.own(count=8)
        moved = Fence(old.worker, old.destination, {lane: old.epochs[lane] for lane in (0, 1)})
        await given.store.ownership.release_lanes(moved)
        again = await given.own(worker=old.worker, count=2)
        assert set(again.epochs) == {0, 1}
        now = Fence(old.worker, old.destination, old.epochs | again.epochs)
        entries = await given.pending()
        assert await given.store.settling.settle_sent(old, entries) == {one.seq for one in entries if one.lane < 2}
        assert await given.store.settling.settle_sent(now, entries[:2]) == set()

    async def test_a_failure_waits_for_its_delay_with_its_error(self, given: Arranged, clock: ManualClock) -> None:
        one = event("a")
        await given.append(one)
        fence, (entry,) = await given.own(), await given.pending()
        error = msgspec.json.encode({"kind": "Boom"}).decode()
        await given.store.settling.record(fence, [verdict(entry, Status.failed, delay=30, error=error, starts=2)])
        (row,) = await given.store.records.list_open(_ALL, after=0, limit=10)
        assert (row["status"], row["blocks"], row["attempts"], row["last_error"]) == ("failed", True, 1, error)
        assert await given.due() == []
        clock.advance(31)
        (due,) = await given.due()
        assert (due.attempts, due.starts) == (1, 2)
        await given.store.settling.record(fence, [verdict(due, Status.dead)])
        (row,) = await given.store.records.list_open(_ALL, after=0, limit=10)
        assert (row["status"], row["blocks"], row["last_error"]) == ("dead", False, error)

    async def test_a_parked_entry_waits_until_its_time(self, given: Arranged) -> None:
        await given.append(event())
        (entry,) = await given.pending()
        until = datetime.now(UTC) + timedelta(days=1)
        await given.store.settling.record(await given.own(), [verdict(entry, Status.scheduled, until=until)])
        (row,) = await given.store.records.list_open(_ALL, after=0, limit=10)
        assert abs(row["available_at"] - until) < timedelta(milliseconds=1)

    async def test_a_verdict_holds_only_if_the_row_is_as_it_was_read(self, given: Arranged) -> None:
        await given.append(event(), event())
        fence, (one, two) = await given.own(), await given.pending()
        await given.fail(fence, one)
        verdicts = [verdict(one, Status.dead), verdict(two, Status.dead)]
        assert await given.store.settling.record(fence, verdicts) == {two.seq}
        (still,) = await given.due()
        other_attempts = verdict(still, Status.dead, was_attempts=7)
        assert await given.store.settling.record(fence, [other_attempts]) == set()

    async def test_after_its_burial_a_worker_changes_nothing(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(event())
        fence, entries = await given.own(), await given.pending()
        clock.advance(LEASE + 1)
        assert await given.store.ownership.bury_workers() == len(fence.epochs)
        await self._expect_no_power(given, fence)
        again = await given.own()
        await given.fail(again, *entries, status=Status.dead)
        await self._expect_no_power(given, fence)

    async def test_a_worker_whose_row_is_gone_changes_nothing(self, given: Arranged) -> None:
        await given.append(event())
        fence, (entry,) = await given.own(), await given.pending()
        await given.run("DELETE FROM {}postlude_worker")
        await self._expect_no_settling(given, fence, entry)

    async def test_a_fence_is_of_one_destination(self, given: Arranged) -> None:
        await given.append(event())
        (entry,) = await given.pending()
        await self._expect_no_settling(given, await given.own("elsewhere"), entry)

    async def test_a_fence_with_another_worker_or_epoch_has_no_power(self, given: Arranged) -> None:
        await given.append(event())
        fence = await given.own()
        await self._expect_no_power(given, Fence(await given.register(), fence.destination, fence.epochs))
        stale = {lane: epoch - 1 for lane, epoch in fence.epochs.items()}
        await self._expect_no_power(given, Fence(fence.worker, fence.destination, stale))
        await self._expect_no_power(given, Fence(fence.worker, fence.destination, {}))

    async def _expect_no_power(self, given: Arranged, fence: Fence) -> None:
        before = await given.store.records.list_open(_ALL, after=0, limit=10)
        for entry in [*await given.pending(), *await given.due()]:
            await self._expect_no_settling(given, fence, entry)
            async with given.store.transaction() as tx:
                assert not await given.adapter.play(tx, given.store.scripts.settle_handled(fence, entry, 1.0))
        assert await given.store.records.list_open(_ALL, after=0, limit=10) == before

    async def _expect_no_settling(self, given: Arranged, fence: Fence, entry: Delivery) -> None:
        assert await given.store.settling.start(fence, [entry], 5) == set()
        assert await given.store.settling.record(fence, [verdict(entry, Status.failed)]) == set()
        assert await given.store.settling.settle_sent(fence, [entry]) == {entry.seq}

    async def test_a_handler_settles_in_its_own_transaction(self, given: Arranged) -> None:
        cause, effect = event(), event(to=("audit",))
        await given.append(cause)
        fence, (entry,) = await given.own(), await given.pending()
        async with given.store.transaction() as tx:
            assert await given.adapter.play(tx, given.store.scripts.settle_handled(fence, entry, 1.0))
            await given.adapter.play(tx, given.store.scripts.append([effect]))
        assert await given.seqs() == []
        assert len(await given.seqs("audit")) == 1
        story = await given.store.records.story(cause.event_id)
        assert story is not None
        assert [(row["attempts"], row["worker"]) for row in story.receipts] == [(1, fence.worker)]

    async def test_a_handler_that_fails_undoes_its_settling(self, given: Arranged) -> None:
        one = event()
        await given.append(one)
        fence, (entry,) = await given.own(), await given.pending()
        with undone():
            async with given.store.transaction() as tx:
                await given.adapter.play(tx, given.store.scripts.settle_handled(fence, entry, 1.0))
                raise Undo
        story = await given.store.records.story(one.event_id)
        assert story is not None
        assert (len(story.deliveries), story.receipts) == (1, [])
        await given.fail(fence, entry)

    async def test_a_handler_does_not_settle_what_has_changed(self, given: Arranged) -> None:
        await given.append(event())
        fence, (entry,) = await given.own(), await given.pending()
        await given.fail(fence, entry)
        async with given.store.transaction() as tx:
            assert not await given.adapter.play(tx, given.store.scripts.settle_handled(fence, entry, 1.0))

    async def test_what_is_gone_comes_back_condemned(self, given: Arranged) -> None:
        one = event("a", lane=3)
        await given.append(one, event("a", lane=3))
        fence, (entry, _) = await given.own(), await given.pending()
        await given.store.settling.settle_sent(fence, [entry])
        assert await given.store.settling.condemn(fence.destination, entry, '{"kind":"Committed"}')
        (row,) = await given.store.records.list_open(Filter(status="dead"), after=0, limit=10)
        assert (row["event_id"], row["lane"], row["key"], row["blocks"]) == (one.event_id, 3, "a", False)
        assert row["last_error"] == '{"kind":"Committed"}'
        assert [later.blocked for later in await given.pending()] == [False]

    async def test_what_is_open_is_not_condemned(self, given: Arranged) -> None:
        await given.append(event())
        (entry,) = await given.pending()
        assert not await given.store.settling.condemn("broker", entry, "{}")
        assert await given.pending() == [entry]

    async def test_a_route_row_becomes_its_children_in_order(self, given: Arranged) -> None:
        first, second = event(to=(ROUTE,)), event(to=(ROUTE,), max_attempts=4)
        await given.append(first, second)
        fence, entries = await given.own(ROUTE), await given.pending(ROUTE)
        children = [
            Child(one.event_id, destination, 2, "k") for one in (second, first) for destination in ("audit", "billing")
        ]
        seqs = [one.seq for one in entries]
        assert await given.store.settling.expand(fence, seqs, children) == set(seqs)
        assert await given.seqs(ROUTE) == []
        found = await given.pending("audit")
        assert [(one.event_id, one.lane, one.key, one.max_attempts) for one in found] == [
            (second.event_id, 2, "k", 4),
            (first.event_id, 2, "k", None),
        ]
        assert len(await given.pending("billing")) == 2

    async def test_a_route_row_that_is_not_ours_stays(self, given: Arranged) -> None:
        one = event(to=(ROUTE,))
        await given.append(one)
        fence, (entry,) = await given.own(ROUTE), await given.pending(ROUTE)
        children = [Child(one.event_id, "audit", 0, None)]
        for stranger in (
            Fence(uuid4(), ROUTE, fence.epochs),
            Fence(fence.worker, ROUTE, {0: fence.epochs[0] + 1}),
            Fence(fence.worker, ROUTE, {}),
        ):
            assert await given.store.settling.expand(stranger, [entry.seq], children) == set()
        assert await given.seqs("audit") == []
        assert await given.seqs(ROUTE) == [entry.seq]

    async def test_an_event_without_children_just_leaves_the_route(self, given: Arranged) -> None:
        await given.append(event(to=(ROUTE,)))
        fence, (entry,) = await given.own(ROUTE), await given.pending(ROUTE)
        assert await given.store.settling.expand(fence, [entry.seq], []) == {entry.seq}
        assert await given.seqs(ROUTE) == []
