"""Operations: bulk actions that go page by page, each page whole or not at all."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from msgspec import structs

from postlude.core.delivery import Fence
from postlude.core.lifecycle import Status
from postlude.ports.operating import Operation
from postlude.ports.records import Filter
from postlude.ports.settling import Child
from postlude.testing.contracts.arrange import TO, Arranged, StoreUnderTest, event

DEAD = ["dead"]
WHO = {"actor": "ann", "reason": "fixed"}


class OperationsContract(StoreUnderTest):
    _fence: Fence

    async def test_an_operation_is_stored_as_it_was_meant(self, given: Arranged) -> None:
        since = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        which = Filter(status="dead", type="order.placed", saga=uuid4(), since=since)
        meant = _operation(filter=which, last_seq=7, total=3)
        begun = await given.store.operations.begin(meant)
        assert await given.store.operations.get(meant.id) == begun
        assert begun == structs.replace(meant, created_at=begun.created_at, updated_at=begun.updated_at)
        assert begun.created_at is not None
        assert begun.updated_at is not None
        assert begun.created_at <= begun.updated_at
        assert (await given.store.operations.get(uuid4())) is None

    async def test_one_of_a_kind_runs_at_a_time(self, given: Arranged) -> None:
        operations = given.store.operations
        first = await operations.begin(_operation(filter=Filter(type="a", since=datetime(2026, 1, 1, tzinfo=UTC))))
        again = await operations.begin(_operation(filter=Filter(type="a", since=datetime(2026, 1, 2, tzinfo=UTC))))
        assert again == first, "the same but for the time that it looks at"
        for other in (
            _operation(filter=Filter(type="b")),
            _operation(filter=Filter(type="a"), action="discard"),
            _operation(filter=Filter(type="a"), action="replay", destination="x"),
            _operation(filter=Filter(type="a"), action="replay", destination="y"),
        ):
            assert (await operations.begin(other)).id == other.id
        assert await operations.end(first, "done", **WHO)
        renewed = _operation(filter=Filter(type="a"))
        assert (await operations.begin(renewed)).id == renewed.id
        assert [one.id for one in await operations.list(status="done", limit=10)] == [first.id]
        assert len(await operations.list(status=None, limit=10)) == 6
        assert len(await operations.list(status="running", limit=2)) == 2

    async def test_of_many_that_begin_at_once_one_does(self, given: Arranged) -> None:
        begun = await asyncio.gather(*(given.store.operations.begin(_operation()) for _ in range(5)))
        assert len({one.id for one in begun}) == 1

    async def test_a_page_moves_the_cursor_with_what_it_changes(self, given: Arranged) -> None:
        ids = await self._dead(given, 5)
        operations = given.store.operations
        begun = await operations.begin(_operation(last_seq=await given.store.reading.last_seq()))
        assert await operations.count(begun, DEAD) == 5
        page = await operations.page(begun, DEAD, 2)
        assert [row["event_id"] for row in page.rows] == ids[:2]
        assert await operations.act(begun, page) == ids[:2]
        stored = await _stored(given, begun)
        assert (stored.done, stored.cursor, stored.status) == (2, page.cursor, "running")
        (audit,) = await given.store.records.audits(target=str(ids[0]), limit=10)
        assert (audit["action"], audit["actor"], audit["reason"]) == ("requeue", "ann", "fixed")
        assert (audit["detail"]["operation"], audit["detail"]["prior_attempts"]) == (str(begun.id), 1)
        assert "prior_error" not in audit["detail"]
        following = await operations.page(stored, DEAD, 10)
        assert [row["event_id"] for row in following.rows] == ids[2:]

    async def test_a_page_counts_once(self, given: Arranged) -> None:
        ids = await self._dead(given, 4)
        operations = given.store.operations
        begun = await operations.begin(_operation(last_seq=await given.store.reading.last_seq()))
        page = await operations.page(begun, DEAD, 2)
        both = await asyncio.gather(operations.act(begun, page), operations.act(begun, page))
        assert sorted(both, key=bool) == [None, ids[:2]]
        assert (await _stored(given, begun)).done == 2
        assert len(await given.store.records.audits(target=None, limit=10)) == 2
        late = await operations.page(begun, DEAD, 10)
        assert await operations.act(begun, late) is None, "read before the cursor moved"
        assert len(await given.store.records.list_open(Filter(status="dead"), after=0, limit=10)) == 2

    async def test_a_page_leaves_alone_what_changed_meanwhile(self, given: Arranged) -> None:
        ids = await self._dead(given, 3)
        operations = given.store.operations
        which = Filter(status="dead")
        begun = await operations.begin(
            _operation(action="discard", filter=which, last_seq=await given.store.reading.last_seq())
        )
        page = await operations.page(begun, DEAD, 10)
        await given.store.operating.act("requeue", ids[:1], destination=None, **WHO)
        assert await operations.act(begun, page) == ids[1:], "the first is failed now, and dead was meant"
        assert (await _stored(given, begun)).done == 2

    async def test_other_deliveries_of_an_event_are_left_alone(self, given: Arranged) -> None:
        one = event(to=(TO, "shop"))
        await given.append(one)
        operations = given.store.operations
        which = Filter(destination="shop")
        begun = await operations.begin(
            _operation(action="bury", filter=which, last_seq=await given.store.reading.last_seq())
        )
        page = await operations.page(begun, ["pending"], 10)
        assert await operations.act(begun, page) == [one.event_id]
        (row,) = await given.store.records.list_open(Filter(status="dead"), after=0, limit=10)
        assert (row["destination"], "Buried" in row["last_error"]) == ("shop", True)

    async def test_what_came_later_is_not_meant(self, given: Arranged) -> None:
        (first,) = await self._dead(given, 1)
        operations = given.store.operations
        begun = await operations.begin(_operation(last_seq=await given.store.reading.last_seq()))
        await self._dead(given, 1)
        page = await operations.page(begun, DEAD, 10)
        assert [row["event_id"] for row in page.rows] == [first]
        assert await operations.count(begun, DEAD) == 1

    async def test_an_operation_that_ended_changes_nothing(self, given: Arranged) -> None:
        await self._dead(given, 1)
        operations = given.store.operations
        begun = await operations.begin(_operation(last_seq=await given.store.reading.last_seq()))
        page = await operations.page(begun, DEAD, 10)
        assert await operations.end(begun, "cancelled", actor="bob", reason="wrong one")
        assert not await operations.end(begun, "cancelled", actor="bob", reason="wrong one")
        assert await operations.act(begun, page) is None
        ended = await _stored(given, begun)
        assert (ended.status, ended.done, ended.ended_at is not None) == ("cancelled", 0, True)
        assert not await operations.resume(begun.id, **WHO)
        (audit,) = await given.store.records.audits(target=str(begun.id), limit=10)
        assert (audit["action"], audit["actor"]) == ("cancel_operation", "bob")
        assert audit["detail"] == {"action": "requeue", "done": 0}

    async def test_it_is_done_only_from_where_it_stands(self, given: Arranged) -> None:
        await self._dead(given, 2)
        operations = given.store.operations
        begun = await operations.begin(_operation(last_seq=await given.store.reading.last_seq()))
        await operations.act(begun, await operations.page(begun, DEAD, 1))
        assert not await operations.end(begun, "done", **WHO)
        assert await operations.end(await _stored(given, begun), "done", **WHO)
        assert await given.store.records.audits(target=str(begun.id), limit=10) == [], "an end is nobody's act"

    async def test_who_resumes_it_is_audited(self, given: Arranged) -> None:
        begun = await given.store.operations.begin(_operation())
        assert await given.store.operations.resume(begun.id, actor="bob", reason="fixed")
        (audit,) = await given.store.records.audits(target=str(begun.id), limit=10)
        assert (audit["action"], audit["actor"], audit["detail"]) == ("resume_operation", "bob", {"action": "requeue"})

    async def test_stored_events_are_replayed_page_by_page(self, given: Arranged) -> None:
        many = [event("a", to=()) for _ in range(5)]
        for one in many:
            await given.append(one)
        operations = given.store.operations
        current = await operations.begin(_operation(action="replay", destination=TO))
        await given.append(event("a", to=(), id=UUID(int=2**128 - 1), type="late"))
        while (page := await operations.page(current, [], 2)).rows:
            children = [Child(row["event_id"], TO, 0, row["key"]) for row in page.rows]
            assert await operations.replay(current, page, children) == [child.event_id for child in children]
            assert await operations.replay(current, page, children) is None
            current = await _stored(given, current)
        assert current.done == 5, "what came later is not meant"
        assert {one.event_id for one in await given.pending()} == {one.event_id for one in many}
        assert len(await given.store.records.audits(target=None, limit=10)) == 5

    async def test_a_replay_may_be_narrowed_by_what_became_of_events(self, given: Arranged) -> None:
        sent, still_open, recorded = event(), event(type="other"), event(to=())
        await given.append(sent)
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        await given.append(still_open, recorded)

        async def found(**which: Any) -> set[UUID]:
            meant = _operation(action="replay", destination="x", filter=Filter(**which))
            page = await given.store.operations.page(meant, [], 10)
            assert await given.store.operations.count(meant, []) == len(page.rows)
            return {row["event_id"] for row in page.rows}

        assert await found() == {sent.event_id, still_open.event_id, recorded.event_id}
        assert await found(status="sent") == {sent.event_id}
        assert await found(status="pending") == {still_open.event_id}
        assert await found(destination=TO) == {sent.event_id, still_open.event_id}
        assert await found(type="other") == {still_open.event_id}
        assert await found(status="discarded") == set()

    async def test_what_a_replay_is_aimed_at_may_be_narrowed_by_time(self, given: Arranged) -> None:
        earlier, later = event(to=()), event(to=())
        await given.append(earlier)
        between = await given.store.records.now()
        await given.append(later)
        for which, meant in ((Filter(until=between), earlier), (Filter(since=between), later)):
            operation = _operation(action="replay", destination="x", filter=which)
            assert await given.store.operations.count(operation, []) == 1
            (row,) = (await given.store.operations.page(operation, [], 10)).rows
            assert row["event_id"] == meant.event_id
            assert (row["created_at"] < between) == (meant is earlier)

    async def _dead(self, given: Arranged, count: int) -> list[UUID]:
        many = [event() for _ in range(count)]
        await given.append(*many)
        claimed = await given.own()
        self._fence = claimed if claimed.epochs else self._fence
        await given.fail(self._fence, *await given.pending(), status=Status.dead)
        return [one.event_id for one in many]


def _operation(**given: Any) -> Operation:
    return Operation(**{"id": uuid4(), "action": "requeue", "filter": Filter(), **WHO, **given})


async def _stored(given: Arranged, operation: Operation) -> Operation:
    found = await given.store.operations.get(operation.id)
    assert found is not None
    return found
