"""Appending: what a caller's transaction leaves behind."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from postlude.core.lifecycle import Status
from postlude.errors import IdConflict
from postlude.testing.contracts.arrange import TO, Arranged, StoreUnderTest, Undo, event, undone


class AppendingContract(StoreUnderTest):
    async def test_an_event_comes_back_as_it_was_appended(self, given: Arranged) -> None:
        cause, saga = uuid4(), uuid4()
        one = event(
            "o-1",
            version=3,
            entity="order/o-1",
            payload=b"\x00\xff bytes",
            content_type="application/x",
            headers='{"tenant":"acme"}',
            causation_id=cause,
            saga_id=saga,
            subjects=("ann", "bob"),
        )
        assert await given.append(one) == [one.event_id]
        stored = (await given.store.reading.events([one.event_id]))[one.event_id]
        assert (stored.type, stored.version, stored.source, stored.entity) == ("order.placed", 3, "shop", "order/o-1")
        assert (stored.key, stored.topic, stored.content_type) == ("o-1", "orders", "application/x")
        assert (stored.payload, stored.headers, stored.correlation_id) == (one.payload, {"tenant": "acme"}, "c-1")
        assert (stored.causation_id, stored.saga_id) == (cause, saga)
        assert abs(datetime.now(UTC) - stored.created_at) < timedelta(minutes=1)

    async def test_many_events_come_back_as_they_were_appended(self, given: Arranged) -> None:
        cause = uuid4()
        many = [
            event("a", payload=b""),
            event(payload=b"\x00\xff", headers='{"n":"\\u00fc\\""}', causation_id=cause, subjects=("ann",)),
            event("\U0001f600", payload=b"{}", correlation_id=""),
        ]
        assert await given.append(*many) == [one.event_id for one in many]
        stored = await given.store.reading.events([one.event_id for one in many])
        assert [stored[one.event_id].payload for one in many] == [one.payload for one in many]
        assert [stored[one.event_id].key for one in many] == ["a", None, "\U0001f600"]
        assert [stored[one.event_id].causation_id for one in many] == [None, cause, None]
        assert stored[many[1].event_id].headers == {"n": 'ü"'}
        assert stored[many[2].event_id].correlation_id == str(many[2].event_id)

    async def test_deliveries_stand_in_the_order_given(self, given: Arranged) -> None:
        many = [event(to=(TO, "audit"), lane=index % 3) for index in range(20)]
        await given.append(*many[:-1])
        await given.append(many[-1])
        first, second = await given.pending(), await given.pending("audit")
        assert [one.event_id for one in first] == [one.event_id for one in second] == [one.event_id for one in many]
        seqs = [delivery.seq for pair in zip(first, second, strict=True) for delivery in pair]
        assert seqs == sorted(seqs)

    async def test_a_delivery_has_what_the_event_says(self, given: Arranged) -> None:
        await given.append(event("o-1", lane=5, max_attempts=2), event(priority=0, lane=6))
        ordered, urgent = await given.pending()
        assert (ordered.lane, ordered.key, ordered.priority, ordered.max_attempts) == (5, "o-1", 1, 2)
        assert (urgent.lane, urgent.key, urgent.priority, urgent.max_attempts) == (6, None, 0, None)
        assert (ordered.status, ordered.attempts, ordered.starts, ordered.blocked) == (Status.pending, 0, 0, False)

    async def test_a_delayed_event_is_born_scheduled(self, given: Arranged) -> None:
        later = datetime.now(UTC) + timedelta(hours=1)
        one, two = event("o-1", available_at=later), event("o-2", available_at=later)
        await given.append(one)
        await given.append(two, event("o-3"))
        assert [delivery.key for delivery in await given.pending()] == ["o-3"]
        story = await given.store.records.story(one.event_id)
        assert story is not None
        (row,) = story.deliveries
        assert (row["status"], row["blocks"]) == ("scheduled", False)
        assert abs(row["available_at"] - later) < timedelta(milliseconds=1)

    async def test_an_event_may_go_nowhere(self, given: Arranged) -> None:
        one, two, three = event(to=()), event(to=()), event(to=())
        await given.append(one)
        await given.append(two, three)
        assert len(await given.store.reading.events([one.event_id, two.event_id, three.event_id])) == 3
        assert await given.pending() == []

    async def test_the_same_id_and_content_is_a_no_op(self, given: Arranged) -> None:
        one = event()
        await given.append(one)
        assert await given.append(one) == [one.event_id]
        assert len(await given.pending()) == 1

    async def test_a_settled_event_is_not_delivered_again_by_the_same_id(self, given: Arranged) -> None:
        one = event()
        await given.append(one)
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        await given.append(one)
        assert await given.pending() == []

    async def test_the_same_id_with_other_content_is_refused(self, given: Arranged) -> None:
        one = event(payload=b"1")
        await given.append(one)
        with pytest.raises(IdConflict, match=str(one.event_id)):
            await given.append(event(id=one.event_id, payload=b"2"))
        assert len(await given.pending()) == 1

    async def test_of_many_only_the_new_ones_are_written(self, given: Arranged) -> None:
        old, new, newer = event(), event(), event()
        await given.append(old)
        assert await given.append(new, old, newer) == [new.event_id, old.event_id, newer.event_id]
        assert [one.event_id for one in await given.pending()] == [old.event_id, new.event_id, newer.event_id]

    async def test_a_conflict_among_many_leaves_nothing(self, given: Arranged) -> None:
        old = event(payload=b"1")
        await given.append(old)
        with pytest.raises(IdConflict, match=str(old.event_id)):
            await given.append(event(), event(id=old.event_id, payload=b"2"), event())
        assert len(await given.pending()) == 1

    async def test_an_id_given_twice_at_once_is_written_once(self, given: Arranged) -> None:
        one, two = event(), event()
        assert await given.append(one, two, one) == [one.event_id, two.event_id, one.event_id]
        assert len(await given.pending()) == 2

    async def test_an_id_given_twice_at_once_with_other_content_is_refused(self, given: Arranged) -> None:
        one = event(payload=b"1")
        with pytest.raises(IdConflict, match=str(one.event_id)):
            await given.append(one, event(id=one.event_id, payload=b"2"))

    async def test_what_is_rolled_back_never_was(self, given: Arranged) -> None:
        one = event()
        with undone():
            async with given.store.transaction() as tx:
                await given.adapter.play(tx, given.store.scripts.append([one]))
                raise Undo
        assert await given.store.reading.events([one.event_id]) == {}
        assert await given.pending() == []

    async def test_a_cancelled_transaction_is_rolled_back(self, given: Arranged) -> None:
        began = asyncio.Event()

        async def hang() -> None:
            async with given.store.transaction() as tx:
                await given.adapter.play(tx, given.store.scripts.append([event()]))
                began.set()
                await asyncio.Event().wait()

        hanging = asyncio.create_task(hang())
        await began.wait()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        await given.append(event())
        assert len(await given.pending()) == 1
