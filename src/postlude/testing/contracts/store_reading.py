"""Reading: what a relay sees of the open work."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from postlude.core.delivery import Delivery
from postlude.core.floors import Track
from postlude.core.lifecycle import Status
from postlude.ports.reading import News
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import TO, Arranged, StoreUnderTest, event


class ReadingContract(StoreUnderTest):
    async def test_the_last_seq_is_that_of_the_newest_delivery(self, given: Arranged) -> None:
        before = await given.store.reading.last_seq()
        await given.append(event(), event())
        assert (await given.seqs())[-1] == await given.store.reading.last_seq() > before

    async def test_the_last_seq_never_goes_back(self, given: Arranged) -> None:
        await given.append(event())
        last = await given.store.reading.last_seq()
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        assert await given.store.reading.last_seq() == last
        await given.append(event())
        assert await given.seqs() > [last]

    async def test_nobody_is_appending_when_nothing_is_open(self, given: Arranged) -> None:
        await given.append(event())
        assert await given.store.reading.appenders() == frozenset()

    async def test_news_tells_the_lanes_above_a_seq(self, given: Arranged) -> None:
        await given.append(event(lane=1))
        after = await given.store.reading.last_seq()
        later = datetime.now(UTC) + timedelta(hours=1)
        await given.append(event(lane=2), event(lane=2), event(priority=2), event(lane=3, available_at=later))
        news = await given.store.reading.news(after, 100)
        assert sorted(news, key=lambda one: one.lane) == [
            News(TO, 0, 2, pending=True, entries=1),
            News(TO, 2, 1, pending=True, entries=2),
            News(TO, 3, 1, pending=False, entries=1),
        ]

    async def test_news_looks_at_no_more_than_its_limit(self, given: Arranged) -> None:
        after = await given.store.reading.last_seq()
        await given.append(*(event() for _ in range(5)))
        assert [one.entries for one in await given.store.reading.news(after, 3)] == [3]

    async def test_a_read_begins_above_the_floor(self, given: Arranged) -> None:
        await given.append(*(event() for _ in range(4)))
        seqs = await given.seqs()
        found = await given.store.reading.read_pending(TO, [Track(0, 1, floor=seqs[1])], 10)
        assert [one.seq for one in found] == seqs[2:]

    async def test_every_track_has_the_limit_for_itself(self, given: Arranged) -> None:
        await given.append(*(event(lane=lane) for lane in (0, 0, 0, 1, 1, 1, 2)))
        found = await given.store.reading.read_pending(TO, [Track(0, 1), Track(1, 1)], 2)
        assert [one.lane for one in found] == [0, 0, 1, 1]
        assert found == sorted(found, key=_seq)

    async def test_priorities_are_tracks_of_their_own(self, given: Arranged) -> None:
        await given.append(event(priority=2), event(priority=0), event())
        low, high, _ = await given.seqs()
        found = await given.store.reading.read_pending(TO, [Track(0, 0), Track(0, 2, floor=low)], 10)
        assert [one.seq for one in found] == [high]

    async def test_other_destinations_and_lanes_are_not_read(self, given: Arranged) -> None:
        await given.append(event(to=("elsewhere",)), event(lane=3))
        assert await given.store.reading.read_pending(TO, [Track(0, 1)], 10) == []

    async def test_no_tracks_no_rows(self, given: Arranged) -> None:
        await given.append(event())
        assert await given.store.reading.read_pending(TO, [], 10) == []
        assert await given.store.reading.read_due(TO, [], 10, []) == []

    async def test_a_failed_entry_blocks_the_later_ones_of_its_key_only(self, given: Arranged) -> None:
        await given.append(*(event(key) for key in ("a", "a", "a", "b")))
        entries = await given.pending()
        await given.fail(await given.own(), entries[1])
        assert [(one.seq, one.blocked) for one in await given.pending()] == [
            (entries[0].seq, False),
            (entries[2].seq, True),
            (entries[3].seq, False),
        ]

    async def test_a_key_blocks_only_at_its_own_destination(self, given: Arranged) -> None:
        await given.append(event("a", to=("elsewhere", TO)), event("a"))
        fence = await given.own("elsewhere")
        await given.fail(fence, *await given.pending("elsewhere"))
        assert [one.blocked for one in await given.pending()] == [False, False]

    async def test_a_claimed_entry_blocks_and_a_scheduled_one_does_not(self, given: Arranged) -> None:
        await given.append(event("a"), event("a"), event("b"), event("b"))
        fence, entries = await given.own(), await given.pending()
        await given.store.settling.start(fence, [entries[0]], 60)
        await given.fail(fence, entries[2], status=Status.scheduled, delay=60)
        assert [(one.key, one.blocked) for one in await given.pending()] == [("a", True), ("b", False)]

    async def test_due_work_comes_when_its_time_has_come(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(*(event() for _ in range(3)))
        fence, (failed, scheduled, claimed) = await given.own(), await given.pending()
        await given.fail(fence, failed, delay=10)
        await given.fail(fence, scheduled, status=Status.scheduled, delay=10)
        await given.store.settling.start(fence, [claimed], 10)
        assert await given.due() == []
        clock.advance(11)
        assert [(one.seq, one.status, one.attempts) for one in await given.due()] == [
            (failed.seq, Status.failed, 1),
            (scheduled.seq, Status.scheduled, 1),
            (claimed.seq, Status.claimed, 1),
        ]

    async def test_due_work_leaves_out_what_is_under_way(self, given: Arranged) -> None:
        await given.append(event(), event())
        one, two = await given.pending()
        await given.fail(await given.own(), one, two)
        assert [entry.seq for entry in await given.due(excluding=[one.seq])] == [two.seq]

    async def test_due_work_is_limited_by_lane_and_blocked_by_what_is_older(self, given: Arranged) -> None:
        await given.append(*(event("a") for _ in range(3)), event("b", lane=1))
        await given.fail(await given.own(), *await given.pending())
        found = await given.store.reading.read_due(TO, [0, 1], 2, [])
        assert [(one.key, one.blocked) for one in found] == [("a", False), ("a", True), ("b", False)]

    async def test_pending_and_dead_work_is_never_due(self, given: Arranged) -> None:
        await given.append(event(), event())
        await given.fail(await given.own(), (await given.pending())[0], status=Status.dead)
        assert await given.due() == []

    async def test_a_key_is_free_when_nothing_before_it_blocks(self, given: Arranged) -> None:
        await given.append(*(event(key) for key in ("a", "a", "b", "b")))
        fence, (head, follower, other, last) = await given.own(), await given.pending()
        await given.fail(fence, head)
        probe = [("a", follower.seq), ("b", last.seq), ("a", head.seq)]
        assert await given.store.reading.freed(TO, probe[:2]) == ["b"]
        assert await given.store.reading.freed(TO, [("a", head.seq)]) == ["a"]
        await given.store.settling.settle_sent(fence, [head, other])
        assert sorted(await given.store.reading.freed(TO, probe[:2])) == ["a", "b"]
        assert await given.store.reading.freed(TO, []) == []

    async def test_missing_events_are_left_out(self, given: Arranged) -> None:
        one = event()
        await given.append(one)
        found = await given.store.reading.events([uuid4(), one.event_id])
        assert list(found) == [one.event_id]
        assert await given.store.reading.events([]) == {}

    async def test_there_is_something_to_do_only_when_it_could_be_delivered(
        self, given: Arranged, clock: ManualClock
    ) -> None:
        reading = given.store.reading
        assert not await reading.has_due([TO])
        await given.append(event("a"), event("a"))
        assert await reading.has_due([TO])
        assert not await reading.has_due(["elsewhere"])
        await given.fail(await given.own(), (await given.pending())[0], delay=10)
        assert not await reading.has_due([TO])
        clock.advance(11)
        assert await reading.has_due(["elsewhere", TO])


def _seq(delivery: Delivery) -> int:
    return delivery.seq
