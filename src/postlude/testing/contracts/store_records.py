"""Records: what insight can show."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from postlude.core.lifecycle import Status
from postlude.ports.records import Filter
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LEASE, TO, Arranged, StoreUnderTest, event

FIRST = UUID(int=0)


class RecordsContract(StoreUnderTest):
    async def test_an_empty_database_counts_nothing(self, given: Arranged) -> None:
        assert sum((await given.store.records.counts()).values()) == 0
        assert await given.store.records.stats() == []
        assert await given.store.records.unserved() == {}
        assert await given.store.records.audits(target=None, limit=10) == []

    async def test_open_work_is_counted_by_status(self, given: Arranged) -> None:
        await given.append(event(), event(), event())
        await given.fail(await given.own(), (await given.pending())[0], status=Status.dead)
        counts = await given.store.records.counts()
        assert {status: count for status, count in counts.items() if count} == {"pending": 2, "dead": 1}

    async def test_stats_tell_age_and_blocked_keys(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(event("a"), event("a"), event("b"), event(to=("shop",)))
        entries = await given.pending()
        await given.fail(await given.own(), entries[0], entries[2], delay=10)
        rows = {(row["destination"], row["status"]): row for row in await given.store.records.stats()}
        assert rows[TO, "failed"]["oldest_due_seconds"] is None
        clock.advance(70)
        rows = {(row["destination"], row["status"]): row for row in await given.store.records.stats()}
        assert {name: row["entries"] for name, row in rows.items()} == {
            (TO, "failed"): 2,
            (TO, "pending"): 1,
            ("shop", "pending"): 1,
        }
        assert (rows[TO, "failed"]["blocked_keys"], rows[TO, "pending"]["blocked_keys"]) == (2, 0)
        assert 59 <= rows[TO, "failed"]["oldest_due_seconds"] <= 62

    async def test_the_time_is_the_one_that_events_are_stored_with(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(event())
        (row,) = await given.store.records.list_open(Filter(), after=0, limit=1)
        clock.advance(3600)
        now = await given.store.records.now()
        assert 3599 <= (now - row["created_at"]).total_seconds() <= 3600 + 60

    async def test_open_work_can_be_filtered(self, given: Arranged) -> None:
        saga = uuid4()
        one = event("a", type="order.paid", correlation_id="c-9", saga_id=saga)
        await given.append(one, event("b", to=("shop",)))
        await given.fail(await given.own(), *await given.pending())
        for which in (
            Filter(status="failed"),
            Filter(type="order.paid"),
            Filter(key="a"),
            Filter(correlation="c-9"),
            Filter(saga=saga),
            Filter(destination=TO),
            Filter(status="failed", type="order.paid", key="a", destination=TO),
        ):
            found = await given.store.records.list_open(which, after=0, limit=10)
            assert [row["event_id"] for row in found] == [one.event_id], which
        assert await given.store.records.list_open(Filter(status="dead"), after=0, limit=10) == []
        assert await given.store.records.list_open(Filter(key="a", destination="shop"), after=0, limit=10) == []

    async def test_open_work_can_be_filtered_by_time(self, given: Arranged) -> None:
        await given.append(event())
        now, hour = datetime.now(UTC), timedelta(hours=1)
        for which, count in (
            (Filter(since=now - hour), 1),
            (Filter(since=now + hour), 0),
            (Filter(until=now + hour), 1),
            (Filter(until=now - hour), 0),
        ):
            assert len(await given.store.records.list_open(which, after=0, limit=10)) == count

    async def test_open_work_comes_in_pages(self, given: Arranged) -> None:
        await given.append(*(event() for _ in range(5)))
        seqs, after = [], 0
        while page := await given.store.records.list_open(Filter(), after=after, limit=2):
            assert len(page) <= 2
            seqs += [row["seq"] for row in page]
            after = seqs[-1]
        assert seqs == await given.seqs()

    async def test_a_row_of_open_work_tells_all(self, given: Arranged) -> None:
        one = event("a", lane=3, max_attempts=5)
        await given.append(one)
        (row,) = await given.store.records.list_open(Filter(), after=0, limit=1)
        assert row["event_id"] == one.event_id
        assert (row["destination"], row["lane"], row["key"], row["priority"]) == (TO, 3, "a", 1)
        assert (row["status"], row["attempts"], row["max_attempts"], row["blocks"]) == ("pending", 0, 5, False)
        assert (row["last_error"], row["type"], row["correlation_id"]) == (None, "order.placed", "c-1")
        assert row["available_at"].tzinfo is not None
        assert row["created_at"].tzinfo is not None

    async def test_a_delivery_whose_event_is_missing_is_still_listed(self, given: Arranged) -> None:
        await given.append(event())
        await given.run("DELETE FROM {}postlude_event")
        (row,) = await given.store.records.list_open(Filter(), after=0, limit=1)
        assert row["type"] is None

    async def test_settled_work_comes_in_pages_and_can_be_filtered(self, given: Arranged) -> None:
        await given.append(*(event("a", to=(TO, "shop")) for _ in range(3)), event("b", type="order.paid"))
        for destination in (TO, "shop"):
            await given.store.settling.settle_sent(await given.own(destination), await given.pending(destination))
        rows, after = [], (FIRST, 0)
        while page := await given.store.records.list_settled(Filter(), after=after, limit=1):
            rows += page
            after = (page[-1]["event_id"], page[-1]["seq"])
        assert len({(row["event_id"], row["seq"]) for row in rows}) == len(rows) == 7
        assert {row["outcome"] for row in rows} == {"sent"}
        for which, count in (
            (Filter(status="sent"), 7),
            (Filter(status="discarded"), 0),
            (Filter(destination="shop"), 3),
            (Filter(type="order.paid"), 1),
            (Filter(key="a", destination=TO), 3),
            (Filter(correlation="c-1"), 7),
        ):
            assert len(await given.store.records.list_settled(which, after=(FIRST, 0), limit=10)) == count, which

    async def test_a_story_tells_all_of_an_event(self, given: Arranged) -> None:
        one = event(to=(TO, "shop"))
        effect = event(causation_id=one.event_id)
        await given.append(one)
        await given.store.settling.settle_sent(await given.own("shop"), await given.pending("shop"))
        await given.append(effect)
        story = await given.store.records.story(one.event_id)
        assert story is not None
        assert story.event.event_id == one.event_id
        assert [row["destination"] for row in story.deliveries] == [TO]
        assert [(row["destination"], row["outcome"]) for row in story.receipts] == [("shop", "sent")]
        assert story.receipts[0]["settled_at"].tzinfo is not None
        assert story.caused == [effect.event_id]
        assert await given.store.records.story(uuid4()) is None

    async def test_work_that_nobody_serves_is_counted(self, given: Arranged, clock: ManualClock) -> None:
        await given.append(event(), event(to=("shop",)), event(to=("shop",)))
        assert await given.store.records.unserved() == {TO: 1, "shop": 2}
        await given.register(TO)
        assert await given.store.records.unserved() == {"shop": 2}
        clock.advance(LEASE + 1)
        assert await given.store.records.unserved() == {TO: 1, "shop": 2}

    async def test_an_export_gives_every_event_oldest_id_first(self, given: Arranged) -> None:
        many = [event() for _ in range(1100)]
        await given.append(*many)
        found = [one.event_id async for one in given.store.records.export(Filter())]
        assert found == sorted(one.event_id for one in many)

    async def test_an_export_gives_only_what_fits(self, given: Arranged) -> None:
        saga, hour = uuid4(), timedelta(hours=1)
        one = event("a", type="order.paid", correlation_id="c-9", saga_id=saga)
        await given.append(one, event("b"))
        now = datetime.now(UTC)
        for which in (
            Filter(type="order.paid"),
            Filter(key="a"),
            Filter(correlation="c-9"),
            Filter(saga=saga),
            Filter(type="order.paid", since=now - hour, until=now + hour),
        ):
            assert [found.event_id async for found in given.store.records.export(which)] == [one.event_id], which
        assert [found async for found in given.store.records.export(Filter(since=now + hour))] == []
