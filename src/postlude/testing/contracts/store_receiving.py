"""Messages from brokers: taken once by each consumer, with their events, deliveries and counts, or not at all."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude.core.lifecycle import Status
from postlude.errors import IdConflict
from postlude.ports.append import Prepared
from postlude.ports.receiving import InboxFilter, Taken
from postlude.ports.store import Store
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, Undo, event, undone

BILLING, SHIPPING = "billing", "shipping"
COUNTS = ("received", "duplicates", "ignored", "unreadable")


class ReceivingContract(StoreUnderTest):
    # ------------------------------------------------------------ the script

    async def test_what_is_new_is_written_and_what_was_seen_is_not(self, given: Arranged) -> None:
        one, two, three = (_message() for _ in range(3))
        assert await _receive(given, one, two) == {one.event_id, two.event_id}
        assert await _receive(given, two, three, two.event_id) == {three.event_id}
        assert len(await given.pending(BILLING)) == 3
        assert await _count(given, "postlude_inbox") == await _count(given, "postlude_event") == 3

    async def test_deliveries_stand_in_the_order_of_the_messages(self, given: Arranged) -> None:
        taken = [_message("k") for _ in range(20)]
        await _receive(given, *taken)
        assert [one.event_id for one in await given.pending(BILLING)] == [one.event_id for one in taken]

    async def test_every_part_of_an_event_is_kept(self, given: Arranged) -> None:
        cause = uuid4()
        told: dict[str, Any] = {
            "payload": b"\x00\xff",
            "entity": "order",
            "headers": '{"tenant":"t"}',
            "subjects": ("ann", 'b,o"b'),
        }
        one = _message("k", correlation_id="c-9", causation_id=cause, version=3, **told)
        await _receive(given, one)
        stored = (await given.store.reading.events([one.event_id]))[one.event_id]
        names = ("type", "version", "source", "entity", "key", "topic", "payload", "correlation_id", "causation_id")
        assert [getattr(stored, name) for name in names] == [getattr(one, name) for name in names]
        assert stored.headers == {"tenant": "t"}

    async def test_consumers_do_not_know_of_each_other_and_share_the_event(self, given: Arranged) -> None:
        one = _message()
        other = _message(id=one.event_id, to=[SHIPPING])
        assert await _receive(given, one) == {one.event_id}
        assert await _receive(given, other, consumer=SHIPPING) == {one.event_id}
        assert len(await given.pending(BILLING)) == len(await given.pending(SHIPPING)) == 1
        assert await _count(given, "postlude_event") == 1

    async def test_an_event_of_our_own_that_comes_back_is_taken(self, given: Arranged) -> None:
        """A route may have given it another key on its way, which the digest would notice."""
        one = event("k")
        await given.append(one)
        back = _message("other", id=one.event_id, digest=b"another")
        assert await _receive(given, back) == {one.event_id}
        assert [entry.key for entry in await given.pending(BILLING)] == ["other"]

    @pytest.mark.parametrize("difference", [{"payload": b"[]"}, {"type": "order.lost"}, {"version": 2}])
    async def test_other_content_under_a_stored_id_is_named_and_nothing_is_written(
        self, given: Arranged, difference: dict[str, Any]
    ) -> None:
        stored, good = event(), _message()
        await given.append(stored)
        bad = _message(id=stored.event_id, **({"digest": b"another"} | difference))
        with pytest.raises(IdConflict) as refused:
            await _receive(given, good, bad)
        assert refused.value.ids == {stored.event_id}
        assert await given.pending(BILLING) == []
        assert await _count(given, "postlude_inbox") == 0
        assert await given.store.receiving.consumers() == []

    async def test_what_was_rolled_back_was_not_received(self, given: Arranged) -> None:
        one = _message()
        with undone():
            async with given.store.transaction() as tx:
                taken = Taken(consumer=BILLING, events=[one])
                assert await given.adapter.play(tx, given.store.scripts.receive(taken)) == {one.event_id}
                raise Undo
        assert await given.store.receiving.consumers() == []
        assert await _receive(given, one) == {one.event_id}

    async def test_what_is_open_there_already_is_left_alone(self, given: Arranged, clock: ManualClock) -> None:
        """The inbox has forgotten it, and it still waits."""
        one = _message()
        await _receive(given, one)
        (waiting,) = await given.seqs(BILLING)
        clock.advance(10 * 3600)
        await given.store.upkeep.prune(events_hours=0, dead_hours=0, inbox_hours=1, limit=100)
        assert await _receive(given, one) == {one.event_id}
        assert await given.seqs(BILLING) == [waiting]

    async def test_counts_add_up(self, given: Arranged) -> None:
        one, two, broken = _message(), _message(), _message()
        for _ in range(2):
            ids = frozenset([broken.event_id])
            await _take(given, Taken(consumer=BILLING, events=[one, broken], duplicates=1, ignored=2, unreadable=ids))
        await _take(given, Taken(consumer=BILLING, events=[], ignored=4))
        await _receive(given, two, consumer=SHIPPING)
        billing, shipping = await given.store.receiving.consumers()
        assert [billing[name] for name in COUNTS] == [14, 4, 8, 1]
        assert [shipping[name] for name in COUNTS] == [1, 0, 0, 0]
        assert billing["last_at"] >= billing["first_at"]

    async def test_who_receives_the_same_at_once_never_deadlocks_and_writes_it_once(
        self, given: Arranged, other: Store
    ) -> None:
        """Two consumers with two members each, every one in an order of its own."""
        taken = {name: [_message(f"k{n % 3}", id=UUID(int=n + 1), to=[name]) for n in range(40)] for name in CONSUMERS}
        second = Arranged(other, given.adapter, given.prefix)
        for first in range(0, 40, 10):
            batch = {name: events[first : first + 20] for name, events in taken.items()}
            members = [
                _receive(store, *order, consumer=name)
                for name, events in batch.items()
                for store, order in ((given, events), (second, events[::-1]))
            ]
            new = await asyncio.gather(*members)
            for name, (mine, theirs) in zip(batch, (new[:2], new[2:]), strict=True):
                assert not mine & theirs, name
        for name in CONSUMERS:
            assert sorted(entry.event_id.int for entry in await given.pending(name)) == list(range(1, 41))
        assert await _count(given, "postlude_inbox") == 80
        assert await _count(given, "postlude_event") == 40

    # ------------------------------------------------------------ beside it

    async def test_a_consumer_exists_since_its_first_beginning(self, given: Arranged, clock: ManualClock) -> None:
        since, now = await given.store.receiving.begin(BILLING)
        assert abs(now - since) < timedelta(minutes=1)
        clock.advance(7200)
        again, later = await given.store.receiving.begin(BILLING)
        assert again == since
        assert later - since >= timedelta(hours=2)
        (row,) = await given.store.receiving.consumers()
        assert [row[name] for name in COUNTS] == [0, 0, 0, 0]
        assert (row["lag"], row["lag_at"], row["last_at"]) == (None, None, None)

    async def test_the_lag_is_remembered_with_its_time(self, given: Arranged) -> None:
        receiving = given.store.receiving
        since, _ = await receiving.begin(BILLING)
        for lag in (5_000_000_000, None, 0):
            await receiving.record_lag(BILLING, lag)
            (row,) = await receiving.consumers()
            assert row["lag"] == lag
            assert row["lag_at"] >= since

    async def test_open_work_is_counted_up_to_a_limit_without_dead_letters(self, given: Arranged) -> None:
        await given.append(*(_message(to=[to]) for to in (BILLING, BILLING, BILLING, SHIPPING, "elsewhere")))
        open_entries = given.store.receiving.open_entries
        assert [await open_entries(names, 10) for names in ([BILLING], [BILLING, SHIPPING], [])] == [3, 4, 0]
        assert await open_entries([BILLING, SHIPPING], 2) == 2
        fence = await given.own(BILLING)
        first, second, _ = await given.pending(BILLING)
        await given.fail(fence, first, status=Status.dead)
        await given.fail(fence, second)
        assert await open_entries([BILLING], 10) == 2
        assert await open_entries([BILLING], 1) == 1

    async def test_what_was_seen_is_listed_newest_first(self, given: Arranged) -> None:
        older, newer = _message(topic="orders"), _message(topic="returns")
        await _receive(given, older)
        await _receive(given, newer)
        await _receive(given, older, consumer=SHIPPING)
        async with given.store.transaction() as tx:
            await given.adapter.play(tx, given.store.scripts.once("own", older.event_id))
        listed = await _seen(given)
        assert [(row["consumer"], row["topic"]) for row in listed] == [
            ("own", None), (SHIPPING, "orders"), (BILLING, "returns"), (BILLING, "orders"),
        ]  # fmt: skip
        assert listed[-1]["event_id"] == older.event_id
        assert len(await _seen(given, limit=2)) == 2
        assert [row["topic"] for row in await _seen(given, consumer=BILLING)] == ["returns", "orders"]
        assert [row["consumer"] for row in await _seen(given, topic="orders")] == [SHIPPING, BILLING]
        newest, newer_at, older_at, oldest = (row["received_at"] for row in listed)
        between = {"since": oldest + (older_at - oldest) / 2, "until": newer_at + (newest - newer_at) / 2}
        assert [row["topic"] for row in await _seen(given, **between)] == ["orders", "returns"]


CONSUMERS = (BILLING, SHIPPING)


def _message(key: str | None = None, *, to: Sequence[str] = (BILLING,), **given: Any) -> Prepared:
    return event(key, to=to, **given)


async def _receive(given: Arranged, *events: Prepared | UUID, consumer: str = BILLING) -> set[UUID]:
    """In a transaction of their own. An id stands for a message that is in the batch a second time."""
    taken = [one for one in events if isinstance(one, Prepared)]
    return await _take(given, Taken(consumer=consumer, events=taken, duplicates=len(events) - len(taken)))


async def _take(given: Arranged, taken: Taken) -> set[UUID]:
    async with given.store.transaction() as tx:
        return await given.adapter.play(tx, given.store.scripts.receive(taken))


async def _count(given: Arranged, table: str) -> int:
    ((count,),) = await given.run(f"SELECT count(*) FROM {{}}{table}")  # noqa: S608 - a table of ours
    return int(count)


async def _seen(given: Arranged, *, limit: int = 100, **which: Any) -> list[dict[str, Any]]:
    return await given.store.receiving.seen(InboxFilter(**which), limit=limit)
