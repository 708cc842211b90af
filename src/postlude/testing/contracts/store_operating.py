"""Operating: what an operator does, and what the audit says of it."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude.core.lifecycle import Status
from postlude.ports.records import AuditFilter, Filter
from postlude.ports.settling import Child
from postlude.testing.contracts.arrange import TO, Arranged, StoreUnderTest, event, verdict

FIRST = UUID(int=0)


class OperatingContract(StoreUnderTest):
    async def test_a_requeued_dead_letter_is_due_with_a_fresh_budget(self, given: Arranged) -> None:
        one = event("a")
        await given.append(one, event("a"))
        await given.fail(await given.own(), (await given.pending())[0], status=Status.dead)
        assert await self._act(given, "requeue", one.event_id) == [one.event_id]
        (due,) = await given.due()
        assert (due.event_id, due.status, due.attempts, due.starts) == (one.event_id, Status.failed, 0, 0)
        assert [later.blocked for later in await given.pending()] == [True]
        (audit,) = await given.store.records.audits(target=str(one.event_id), limit=10)
        assert (audit["action"], audit["actor"], audit["reason"]) == ("requeue", "ann", "fixed")
        assert audit["detail"]["destination"] == TO
        assert audit["detail"]["prior_attempts"] == 1
        assert (audit["old_status"], audit["new_status"]) == ("dead", "failed")
        assert audit["at"].tzinfo is not None

    async def test_only_dead_letters_whose_event_is_there_are_requeued(self, given: Arranged) -> None:
        dead, pending = event(), event()
        await given.append(dead, pending)
        await given.fail(await given.own(), (await given.pending())[0], status=Status.dead)
        await given.run("DELETE FROM {}postlude_event")
        assert await self._act(given, "requeue", dead.event_id, pending.event_id, uuid4()) == []
        assert await given.store.records.audits(target=None, limit=10) == []

    async def test_requeue_can_be_limited_to_a_destination(self, given: Arranged) -> None:
        one = event(to=(TO, "shop"))
        await given.append(one)
        for destination in (TO, "shop"):
            await given.fail(await given.own(destination), *await given.pending(destination), status=Status.dead)
        assert await self._act(given, "requeue", one.event_id, destination="shop") == [one.event_id]
        assert (await given.due("shop"), await given.due()) != ([], [])
        assert await given.due() == []

    async def test_discarded_work_has_a_receipt_that_says_by_whom(self, given: Arranged) -> None:
        many = [event() for _ in range(4)]
        await given.append(*many)
        fence, (_, failed, scheduled, dead) = await given.own(), await given.pending()
        await given.fail(fence, failed)
        await given.fail(fence, scheduled, status=Status.scheduled, delay=60)
        await given.fail(fence, dead, status=Status.dead)
        ids = [one.event_id for one in many]
        assert sorted(await self._act(given, "discard", *ids)) == sorted(ids)
        assert await given.seqs() == []
        rows = await given.store.records.list_settled(Filter(), after=(FIRST, 0), limit=10)
        assert [(row["outcome"], row["actor"], row["worker"]) for row in rows] == [("discarded", "ann", None)] * 4
        audits = await given.store.records.audits(target=None, limit=10)
        assert sorted(row["detail"]["status"] for row in audits) == ["dead", "failed", "pending", "scheduled"]
        assert sorted(row["old_status"] for row in audits) == ["dead", "failed", "pending", "scheduled"]
        assert {row["new_status"] for row in audits} == {"discarded"}

    async def test_claimed_work_is_neither_discarded_nor_buried(self, given: Arranged) -> None:
        one = event()
        await given.append(one)
        await given.store.settling.start(await given.own(), await given.pending(), 60)
        assert await self._act(given, "discard", one.event_id) == []
        assert await self._act(given, "bury", one.event_id) == []
        assert len(await given.seqs()) == 1

    async def test_buried_work_is_a_dead_letter_that_holds_nothing(self, given: Arranged) -> None:
        one = event("a")
        await given.append(one, event("a"))
        await given.fail(await given.own(), (await given.pending())[0])
        assert await self._act(given, "bury", one.event_id) == [one.event_id]
        (row,) = await given.store.records.list_open(Filter(status="dead"), after=0, limit=10)
        assert (row["event_id"], row["blocks"]) == (one.event_id, False)
        assert "Buried" in row["last_error"]
        assert [later.blocked for later in await given.pending()] == [False]
        (audit,) = await given.store.records.audits(target=None, limit=10)
        assert (audit["action"], audit["detail"]["status"]) == ("bury", "failed")
        assert (audit["old_status"], audit["new_status"]) == ("failed", "dead")

    @pytest.mark.parametrize(
        ("error", "kept"),
        [
            ('{"kind":"ValueError","message":"ann@example.com"}', "ValueError"),
            ('{"message":"ann@example.com"}', "Unknown"),
        ],
    )
    async def test_of_an_earlier_error_only_its_class_is_audited(self, given: Arranged, error: str, kept: str) -> None:
        one = event()
        await given.append(one)
        (delivery,) = await given.pending()
        dead = verdict(delivery, Status.dead, error=error)
        assert await given.store.settling.record(await given.own(), [dead]) == {delivery.seq}
        await self._act(given, "requeue", one.event_id)
        (audit,) = await given.store.records.audits(target=str(one.event_id), limit=10)
        assert audit["detail"] == {"destination": TO, "prior_attempts": 1, "prior_error": kept}

    async def test_an_event_is_told_once_however_many_deliveries_changed(self, given: Arranged) -> None:
        one = event(to=(TO, "shop"))
        await given.append(one)
        assert await self._act(given, "bury", one.event_id) == [one.event_id]
        assert len(await given.store.records.audits(target=str(one.event_id), limit=10)) == 2

    async def test_a_replay_makes_new_work_of_stored_events(self, given: Arranged) -> None:
        settled, still_open = event("a"), event("a")
        await given.append(settled)
        await given.store.settling.settle_sent(await given.own(), await given.pending())
        await given.append(still_open)
        children = [Child(one, TO, 3, "a") for one in (settled.event_id, still_open.event_id, uuid4())]
        assert await given.store.operating.replay(children, actor="ann", reason="again") == [settled.event_id]
        first, second = await given.pending()
        assert (first.event_id, second.event_id) == (still_open.event_id, settled.event_id)
        assert (second.lane, second.key, second.status) == (3, "a", Status.pending)
        (audit,) = await given.store.records.audits(target=None, limit=10)
        assert (audit["action"], audit["target"]) == ("replay", str(settled.event_id))
        assert audit["detail"] == {"destination": TO}

    async def test_a_replay_goes_to_several_destinations_in_order(self, given: Arranged) -> None:
        many = [event(to=()) for _ in range(3)]
        await given.append(*many)
        children = [Child(one.event_id, destination, 0, None) for one in many for destination in (TO, "shop")]
        added = await given.store.operating.replay(children, actor="ann", reason="again")
        assert sorted(added) == sorted([one.event_id for one in many] * 2)
        for destination in (TO, "shop"):
            found = [one.event_id for one in await given.pending(destination)]
            assert found == [one.event_id for one in many], destination

    async def test_nothing_to_do_is_nothing_done(self, given: Arranged) -> None:
        assert await self._act(given, "requeue") == []
        assert await given.store.operating.replay([], actor="ann", reason="again") == []

    async def test_a_destination_is_paused_and_resumed_once(self, given: Arranged) -> None:
        await given.register(TO, "shop")
        operating, ownership = given.store.operating, given.store.ownership
        assert await operating.pause(TO, actor="ann", reason="slow")
        assert not await operating.pause(TO, actor="bob", reason="slow")
        assert await ownership.paused() == {TO}
        paused, _ = await given.store.records.destinations()
        assert (paused["name"], paused["paused_by"], paused["reason"]) == (TO, "ann", "slow")
        assert paused["paused_at"].tzinfo is not None
        assert await operating.resume(TO, actor="ann", reason="fine")
        assert not await operating.resume(TO, actor="ann", reason="fine")
        assert await ownership.paused() == frozenset()
        actions = [row["action"] for row in await given.store.records.audits(target=TO, limit=10)]
        assert sorted(actions) == ["pause", "resume"]

    async def test_an_unknown_destination_is_not_paused(self, given: Arranged) -> None:
        assert not await given.store.operating.pause("nowhere", actor="ann", reason="slow")
        assert await given.store.records.audits(target=None, limit=10) == []

    async def test_audits_are_limited_newest_first(self, given: Arranged) -> None:
        await given.register(TO)
        await given.store.operating.pause(TO, actor="ann", reason="slow")
        await given.store.operating.resume(TO, actor="ann", reason="fine")
        (newest,) = await given.store.records.audits(target=None, limit=1)
        assert newest["action"] == "resume"

    async def test_audits_are_filtered_and_paged(self, given: Arranged) -> None:
        many = [event() for _ in range(3)]
        await given.append(*many)
        ids = [one.event_id for one in many]
        await self._act(given, "bury", *ids)
        await given.store.operating.act("requeue", ids[:1], actor="bob", reason="again", destination=None)
        audits = given.store.records.audits
        assert [row["actor"] for row in await audits(target=None, limit=9, which=AuditFilter(actor="bob"))] == ["bob"]
        assert len(await audits(target=None, limit=9, which=AuditFilter(action="bury"))) == 3
        assert len(await audits(target=str(ids[0]), limit=9)) == 2
        (newest, *_) = everything = await audits(target=None, limit=9)
        assert len(await audits(target=None, limit=9, which=AuditFilter(since=newest["at"]))) == 1
        assert len(await audits(target=None, limit=9, which=AuditFilter(until=newest["at"]))) == 3
        paged: list[dict[str, Any]] = []
        while page := await audits(target=None, limit=2, after=paged[-1]["id"] if paged else None):
            paged += page
        assert paged == everything

    async def _act(self, given: Arranged, action: str, *ids: UUID, destination: str | None = None) -> list[UUID]:
        return await given.store.operating.act(action, ids, actor="ann", reason="fixed", destination=destination)
