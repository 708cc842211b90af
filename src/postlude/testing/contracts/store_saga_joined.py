"""Sagas: what is said in one breath, and what the audit is told, all of it in the caller's transaction."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from uuid import uuid4

from msgspec.structs import replace

from postlude.ports.sagas import SagaAudit
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, Undo, event, undone
from postlude.testing.contracts.saga_arrange import MINE, following, lines, on_its_way, play, saga, started


class SagaJoinedContract(StoreUnderTest):
    async def test_a_start_brings_its_first_work(self, given: Arranged) -> None:
        one = saga()
        work = event(saga_id=one.id, to=(MINE,))
        advance = given.store.saga_scripts.advance
        assert await play(given, advance(one, lines("started"), work, was=0))
        assert await given.store.sagas.get(one.id) == one
        assert await given.store.sagas.history(one.id, limit=10) == lines("started")
        await given.own(MINE)
        (read,) = await given.pending(MINE)
        assert read.event_id == work.event_id
        stored = (await given.store.reading.events([work.event_id]))[work.event_id]
        assert (stored.type, stored.version, stored.payload, stored.saga_id) == (
            work.type,
            work.version,
            work.payload,
            one.id,
        )

    async def test_what_was_decided_on_old_news_brings_nothing(self, given: Arranged) -> None:
        one = saga()
        await started(given, one)
        advance = given.store.saga_scripts.advance
        first, second, third = (event(saga_id=one.id, to=(MINE,)) for _ in range(3))
        assert await play(given, advance(following(one), lines("done"), first, was=1))
        assert not await play(given, advance(following(one, state=2), lines("done"), second, was=1))
        assert not await play(given, advance(saga(generation=2), lines("started"), third, was=0))
        await given.own(MINE)
        assert [read.event_id for read in await given.pending(MINE)] == [first.event_id]
        assert list(await given.store.reading.events([second.event_id, third.event_id])) == []
        assert len(await given.store.sagas.history(one.id, limit=10)) == 1

    async def test_a_delivery_is_settled_and_its_run_read(self, given: Arranged) -> None:
        one = saga()
        await started(given, one)
        await on_its_way(given, one.id)
        fence, take = await given.own(MINE), given.store.saga_scripts.take
        (read,) = await given.pending(MINE)
        with undone():
            async with given.store.transaction() as tx:
                assert await given.adapter.play(tx, take(fence, read, 5.0, one.id)) == (True, one)
                raise Undo
        assert await given.pending(MINE) == [read]
        assert await play(given, take(fence, read, 5.0, one.id)) == (True, one)
        assert await given.pending(MINE) == []
        assert await play(given, take(fence, read, 5.0, one.id)) == (False, None), "it is settled"

    async def test_a_run_that_is_gone_does_not_keep_its_delivery(self, given: Arranged) -> None:
        saga_id = uuid4()
        await on_its_way(given, saga_id)
        fence = await given.own(MINE)
        (read,) = await given.pending(MINE)
        assert await play(given, given.store.saga_scripts.take(fence, read, 5.0, saga_id)) == (True, None)
        assert await given.pending(MINE) == []

    async def test_nothing_is_taken_without_the_fence(self, given: Arranged) -> None:
        one = saga()
        await started(given, one)
        await on_its_way(given, one.id)
        fence, take = await given.own(MINE), given.store.saga_scripts.take
        (read,) = await given.pending(MINE)
        assert await play(given, take(replace(fence, epochs={}), read, 5.0, one.id)) == (False, None)
        await given.store.ownership.release_lanes(fence)
        assert await play(given, take(fence, read, 5.0, one.id)) == (False, None)

    async def test_the_audit_is_told_in_the_same_transaction(self, given: Arranged) -> None:
        one = saga()
        entry = SagaAudit("ann", "saga retry", one.id, "she \0looked", {"step": "charge", "process_id": "ü"})
        with undone():
            async with given.store.transaction() as tx:
                await given.adapter.play(tx, given.store.saga_scripts.audit(entry))
                raise Undo
        assert await given.store.records.audits(target=None, limit=10) == []
        await play(given, given.store.saga_scripts.audit(entry))
        (row,) = await given.store.records.audits(target=None, limit=10)
        assert (row["actor"], row["action"], row["target"]) == ("ann", "saga retry", str(one.id))
        assert row["reason"] == "she \ufffdlooked"
        assert row["detail"] == {"step": "charge", "process_id": "ü"}
