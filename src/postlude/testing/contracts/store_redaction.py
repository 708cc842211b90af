"""Redaction: what is left of a data subject's events, what must finish first, and what never comes back."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude.core.delivery import Delivery
from postlude.core.lifecycle import Status
from postlude.core.redaction import HEADER
from postlude.core.uuid7 import uuid7
from postlude.errors import IdConflict
from postlude.ports.append import Prepared
from postlude.ports.operating import Operation
from postlude.ports.records import Filter
from postlude.ports.redaction import FIRST, RedactedPage, Wanted
from postlude.ports.settling import Child
from postlude.testing.contracts.arrange import TO, Arranged, StoreUnderTest, event
from postlude.testing.contracts.saga_arrange import now, play

WHO, OTHER = "customer-4711", "customer-8"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PERSONAL: dict[str, Any] = {
    "payload": b'{"name":"Ada"}',
    "headers": f'{{"traceparent":"{TRACE}","x-mail":"ada@example.org"}}',
    "correlation_id": f"visit of {WHO}",
    "entity": f"customer:{WHO}",
}
OPEN = (Status.pending, Status.failed, Status.scheduled, Status.claimed)


def wanted(*, discards: bool = False, subject_id: str = WHO) -> Wanted:
    return Wanted(subject_id=subject_id, subject="f00d" * 8, discards=discards, actor="ann", reason="request 17")


def personal(*, subjects: tuple[str, ...] = (WHO,), **given: Any) -> Prepared:
    return event(WHO, subjects=subjects, **(PERSONAL | given))


async def redact(given: Arranged, *, discards: bool = False, subject_id: str = WHO) -> RedactedPage:
    script = given.store.redaction_scripts.events(
        wanted(discards=discards, subject_id=subject_id), after=FIRST, limit=100
    )
    page: RedactedPage = await play(given, script)
    return page


async def brought(given: Arranged, status: Status) -> Delivery:
    """The one pending delivery, brought to a status."""
    (one,) = await given.pending()
    fence = await given.own()
    if status is Status.claimed:
        await given.store.settling.start(fence, [one], 60)
    elif status is not Status.pending:
        await given.fail(fence, one, status=status, delay=60 if status is Status.scheduled else 0)
    return one


async def settle(given: Arranged) -> None:
    await given.store.settling.settle_sent(await given.own(), await given.pending())


async def is_clear(given: Arranged, *event_ids: UUID) -> bool:
    """Is their content still there?"""
    found = await given.store.reading.events(event_ids)
    return all(one.payload == PERSONAL["payload"] for one in found.values())


async def knows(given: Arranged, subject_id: str) -> bool:
    """Do our tables hold something of the subject?"""
    known: bool = await play(given, given.store.call_scripts.knows_subject(subject_id, "nobody"))
    return known


class RedactionContract(StoreUnderTest):
    async def test_a_redacted_event_keeps_what_it_is_and_nothing_of_what_it_says(self, given: Arranged) -> None:
        one = personal(causation_id=uuid4())
        await given.append(one)
        await settle(given)
        before = (await given.store.reading.events([one.event_id]))[one.event_id]
        page = await redact(given)
        assert (page.events, page.deliveries, page.waiting_deliveries) == (1, 0, frozenset())
        after = (await given.store.reading.events([one.event_id]))[one.event_id]
        kept = ("event_id", "type", "version", "source", "topic", "causation_id", "saga_id", "created_at")
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
        assert (after.payload, after.content_type) == (b"{}", "application/json")
        assert (after.key, after.entity, after.correlation_id) == (None, None, str(one.event_id))
        assert after.headers == {"traceparent": TRACE, HEADER: "1"}

    async def test_nothing_is_left_to_be_found_or_told_twice(self, given: Arranged) -> None:
        await given.append(personal())
        await settle(given)
        assert (await redact(given)).events == 1
        assert await redact(given) == RedactedPage(last=None)
        (record,) = await given.store.records.audits(target="subject:" + "f00d" * 8, limit=10)
        assert (record["action"], record["actor"], record["reason"]) == ("redact", "ann", "request 17")
        assert record["detail"] == {"events": 1, "deliveries": 0, "sagas": 0, "waits": 0, "pending": "publish_first"}
        everything = await given.store.records.audits(target=None, limit=10)
        assert WHO not in str(everything)

    async def test_a_correlation_that_is_a_uuid_stays_unless_it_is_the_subject(self, given: Arranged) -> None:
        same, own = str(uuid4()), str(uuid4())
        one, two = (personal(correlation_id=text, subjects=(own,)) for text in (same, own))
        await given.append(one, two)
        await settle(given)
        await redact(given, subject_id=own)
        found = await given.store.reading.events([one.event_id, two.event_id])
        assert found[one.event_id].correlation_id == same
        assert found[two.event_id].correlation_id == str(two.event_id)

    async def test_other_subjects_of_an_event_stay_listed(self, given: Arranged) -> None:
        one = personal(subjects=(OTHER, WHO))
        await given.append(one)
        await settle(given)
        assert (await redact(given)).events == 1
        assert not await is_clear(given, one.event_id)
        assert await knows(given, OTHER)
        assert not await knows(given, WHO)
        assert (await redact(given, subject_id=OTHER)).events == 1
        assert not await knows(given, OTHER)

    async def test_the_events_of_others_are_left_alone(self, given: Arranged) -> None:
        mine, others, nobodys = personal(), personal(subjects=(OTHER,)), personal(subjects=())
        await given.append(mine, others, nobodys)
        await settle(given)
        assert (await redact(given)).events == 1
        assert await is_clear(given, others.event_id, nobodys.event_id)

    async def test_events_are_found_wherever_they_lie(self, given: Arranged) -> None:
        await given.store.upkeep.make_partitions(3)
        milliseconds = int((await now(given.store)).timestamp() * 1000)
        many = [personal(id=uuid7(milliseconds + hours * 3_600_000, hours)) for hours in (0, 24, 48)]
        many += [personal(), personal(id=uuid7(1_000, 5))]
        await given.append(*many)
        await settle(given)
        assert (await redact(given)).events == 5

    async def test_pages_are_bounded_and_go_past_what_waits(self, given: Arranged) -> None:
        many = [personal(to=(TO,) if n % 2 else ()) for n in range(6)]
        await given.append(*many)
        after, pages = FIRST, []
        while True:
            script = given.store.redaction_scripts.events(wanted(), after=after, limit=2)
            page: RedactedPage = await play(given, script)
            if page.last is None:
                break
            after = page.last
            pages.append(page)
        assert len(pages) == 3
        assert sum(page.events for page in pages) == 3
        assert sum(len(page.waiting_deliveries) for page in pages) == 3

    @pytest.mark.parametrize("status", OPEN)
    async def test_what_is_open_is_published_first(self, given: Arranged, status: Status) -> None:
        one = personal()
        await given.append(one)
        delivery = await brought(given, status)
        page = await redact(given)
        assert (page.events, page.deliveries, page.waiting_deliveries) == (0, 0, frozenset({delivery.seq}))
        assert await is_clear(given, one.event_id)
        assert await given.seqs() == [delivery.seq]
        assert await given.store.records.audits(target=None, limit=10) == []

    @pytest.mark.parametrize("status", [Status.pending, Status.failed, Status.scheduled])
    async def test_what_is_open_is_discarded_by_choice(self, given: Arranged, status: Status) -> None:
        one = personal()
        await given.append(one)
        delivery = await brought(given, status)
        page = await redact(given, discards=True)
        assert (page.events, page.deliveries, page.waiting_deliveries) == (1, 1, frozenset())
        assert not await is_clear(given, one.event_id)
        await self._discarded(given, one.event_id, delivery.seq, status)

    async def test_what_is_under_way_is_waited_for_and_the_rest_discarded(self, given: Arranged) -> None:
        one = personal(to=(TO, "shop"))
        await given.append(one)
        await given.store.settling.start(await given.own(), await given.pending(), 60)
        (claimed,) = await given.seqs()
        page = await redact(given, discards=True)
        assert (page.events, page.deliveries, page.waiting_deliveries) == (0, 1, frozenset({claimed}))
        assert await is_clear(given, one.event_id)
        assert await given.seqs("shop") == []

    @pytest.mark.parametrize("discards", [True, False])
    async def test_a_dead_letter_is_discarded_either_way(self, given: Arranged, *, discards: bool) -> None:
        one = personal()
        await given.append(one)
        delivery = await brought(given, Status.dead)
        page = await redact(given, discards=discards)
        assert (page.events, page.deliveries, page.waiting_deliveries) == (1, 1, frozenset())
        await self._discarded(given, one.event_id, delivery.seq, Status.dead)

    async def test_nothing_of_an_event_is_touched_while_it_is_published_first(self, given: Arranged) -> None:
        one = personal(to=(TO, "shop"))
        await given.append(one)
        await brought(given, Status.dead)
        (waiting,) = await given.seqs("shop")
        assert (await redact(given)).waiting_deliveries == {waiting}
        assert len(await given.seqs()) == 1

    async def test_a_redacted_event_is_never_requeued_nor_replayed(self, given: Arranged) -> None:
        one, clear = personal(), event(to=())
        await given.append(one, clear)
        await settle(given)
        await redact(given)
        children = [Child(each.event_id, TO, 0, None) for each in (one, clear)]
        assert await given.store.operating.replay(children, actor="ann", reason="again") == [clear.event_id]
        operation = Operation(id=uuid4(), action="replay", filter=Filter(), actor="ann", reason="r", destination="shop")
        assert await given.store.operations.count(operation, []) == 1
        begun = await given.store.operations.begin(operation)
        page = await given.store.operations.page(begun, [], 100)
        assert [row["event_id"] for row in page.rows] == [clear.event_id]
        await given.run(
            "INSERT INTO {}postlude_delivery (event_id, destination, status) VALUES (:id, 'late', 'scheduled')",
            id=one.event_id if given.store.dialect == "postgres" else one.event_id.bytes,
        )
        await given.run("UPDATE {}postlude_delivery SET status = 'dead' WHERE destination = 'late'")
        act = given.store.operating.act
        assert await act("requeue", [one.event_id], actor="ann", reason="again", destination=None) == []

    async def test_the_id_of_a_redacted_event_is_taken(self, given: Arranged) -> None:
        one = personal(to=())
        await given.append(one)
        await redact(given)
        with pytest.raises(IdConflict):
            await given.append(one)

    # ------------------------------------------------------------ inside

    async def _discarded(self, given: Arranged, event_id: UUID, seq: int, status: Status) -> None:
        assert await given.seqs() == []
        story = await given.store.records.story(event_id)
        assert story is not None
        (receipt,) = story.receipts
        assert (receipt["outcome"], receipt["actor"], receipt["seq"]) == ("discarded", "ann", seq)
        (record,) = await given.store.records.audits(target=str(event_id), limit=10)
        assert (record["action"], record["reason"]) == ("discard", "request 17")
        assert record["detail"]["status"] == status
