"""Redaction of sagas, found by their events, by what moved them, or by their own ids; and of a subject's key."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postlude.core.saga.instance import Instance, SagaStatus
from postlude.ports.redaction import FIRST, RedactedPage
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, event
from postlude.testing.contracts.saga_arrange import ENDED, LIVE, following, lines, now, on_its_way, play, saga, started
from postlude.testing.contracts.store_redaction import OTHER, WHO, is_clear, knows, personal, redact, settle, wanted

HOUR = 3600.0


async def outliving(given: Arranged, **options: Any) -> Instance:
    """A saga that is younger than its events when these are a day old."""
    one = saga(at=await now(given.store) + timedelta(hours=20), **options)
    await started(given, one)
    return one


async def prune(given: Arranged) -> None:
    while await given.store.upkeep.prune(events_hours=24, dead_hours=0, limit=1):
        pass


async def remembered(given: Arranged, *, limit: int = 10) -> RedactedPage:
    page: RedactedPage = await play(given, given.store.redaction_scripts.remembered(wanted(), after=FIRST, limit=limit))
    return page


class RedactionOfSagasContract(StoreUnderTest):
    @pytest.mark.parametrize("status", ENDED)
    async def test_an_ended_saga_forgets_what_it_knew(self, given: Arranged, status: SagaStatus) -> None:
        one = saga(f"order of {WHO}", status=status, error="charge:Refused", held="why")
        assert await play(given, given.store.saga_scripts.write(one, lines("begun", detail="Ada"), was=0))
        await given.append(personal(saga_id=one.id, to=()))
        page = await redact(given)
        assert (page.events, page.sagas) == (1, 1)
        after = await given.store.sagas.get(one.id)
        assert after is not None
        assert (after.version, after.state, after.error, after.held) == (2, None, None, None)
        assert [(step.result, step.code) for step in after.steps] == [(None, None)] * 3
        assert [(step.name, step.phase) for step in after.steps] == [(step.name, step.phase) for step in one.steps]
        assert after.process_id == f"redacted:f00df00d:{one.id}"
        assert [line.detail for line in await given.store.sagas.history(one.id, limit=10)] == [None]
        rows = await given.run("SELECT process_id, error, body FROM {}postlude_saga")
        assert WHO not in str(rows)
        assert not await play(given, given.store.saga_scripts.write(following(one), [], was=1))

    @pytest.mark.parametrize("discards", [True, False])
    @pytest.mark.parametrize("status", LIVE)
    async def test_a_saga_that_has_not_ended_is_waited_for(
        self, given: Arranged, status: SagaStatus, *, discards: bool
    ) -> None:
        one = saga(status=status)
        await started(given, one)
        command = personal(saga_id=one.id)
        await given.append(command)
        page = await redact(given, discards=discards)
        assert (page.events, page.deliveries, page.sagas, page.waiting_sagas) == (0, 0, 0, frozenset({one.id}))
        assert await is_clear(given, command.event_id)
        assert len(await given.seqs()) == 1
        assert await given.store.sagas.get(one.id) == one

    async def test_a_saga_is_found_by_what_moved_it(self, given: Arranged) -> None:
        one = saga(status=SagaStatus.completed)
        await started(given, one)
        trigger = personal(to=())
        await given.append(trigger, event(causation_id=trigger.event_id, saga_id=one.id, to=()))
        assert (await redact(given)).sagas == 1
        after = await given.store.sagas.get(one.id)
        assert after is not None
        assert (after.state, after.process_id) == (None, one.process_id)

    @pytest.mark.parametrize("discards", [True, False])
    async def test_what_is_on_its_way_to_a_saga_is_waited_for(self, given: Arranged, *, discards: bool) -> None:
        one = saga(status=SagaStatus.completed)
        await started(given, one)
        await on_its_way(given, one.id)
        trigger = personal(to=("saga:next",))
        await given.append(trigger, personal(saga_id=one.id, to=()))
        page = await redact(given, discards=discards)
        assert (page.waiting_deliveries, page.waiting_sagas) == (
            frozenset(await given.seqs("saga:next")),
            frozenset({one.id}),
        )
        assert (page.events, page.sagas) == (0, 0)

    async def test_a_saga_named_like_the_subject_is_found_without_an_event(self, given: Arranged) -> None:
        ended, live = saga(WHO, status=SagaStatus.completed), saga(WHO, name="other", status=SagaStatus.stuck)
        await started(given, ended, live, saga("o-2", name="third"))
        assert await knows(given, WHO)
        page: RedactedPage = await play(given, given.store.redaction_scripts.sagas(wanted(), limit=10))
        assert (page.sagas, page.waiting_sagas) == (1, frozenset({live.id}))
        again: RedactedPage = await play(given, given.store.redaction_scripts.sagas(wanted(), limit=10))
        assert (again.sagas, again.waiting_sagas) == (0, frozenset({live.id}))

    async def test_a_saga_of_two_events_is_redacted_once(self, given: Arranged) -> None:
        one = saga(status=SagaStatus.completed)
        await started(given, one)
        await given.append(personal(saga_id=one.id, to=()), personal(saga_id=one.id, to=()))
        pages = []
        after = FIRST
        for _ in range(2):
            page: RedactedPage = await play(given, given.store.redaction_scripts.events(wanted(), after=after, limit=1))
            pages.append(page)
            after = page.last or FIRST
        assert [(page.events, page.sagas) for page in pages] == [(1, 1), (1, 0)]

    async def test_a_saga_that_outlives_its_events_is_found(self, given: Arranged, clock: ManualClock) -> None:
        """Whichever of an event and what it has caused goes first, and however many of them at once."""
        by_own, by_cause, by_trigger, together = [
            await outliving(given, process_id=f"o-{n}", status=SagaStatus.completed) for n in range(4)
        ]
        cause, trigger, both = personal(), personal(to=()), personal(to=())
        await given.append(
            personal(saga_id=by_own.id, to=()), cause, event(causation_id=cause.event_id, saga_id=by_cause.id, to=()),
            trigger, event(causation_id=trigger.event_id, saga_id=by_trigger.id, to=("shop",)),
            both, event(causation_id=both.event_id, saga_id=together.id, to=()),
        )  # fmt: skip
        clock.advance(25 * HOUR)
        await prune(given)
        await settle(given)
        await prune(given)
        assert (await redact(given)).last is None
        assert await knows(given, WHO)
        page = await remembered(given)
        assert (page.sagas, page.waiting_sagas) == (4, frozenset())
        for one in (by_own, by_cause, by_trigger, together):
            after = await given.store.sagas.get(one.id)
            assert after is not None
            assert after.state is None
        assert await remembered(given) == RedactedPage(last=None)
        assert not await knows(given, WHO)

    async def test_one_batch_remembers_as_much_as_many(self, given: Arranged, clock: ManualClock) -> None:
        one = await outliving(given, status=SagaStatus.completed)
        trigger = personal(subjects=(OTHER, WHO), to=())
        await given.append(trigger, event(causation_id=trigger.event_id, saga_id=one.id, to=()))
        clock.advance(25 * HOUR)
        await given.store.upkeep.prune(events_hours=24, dead_hours=0, limit=100)
        assert (await remembered(given)).sagas == 1
        assert await knows(given, OTHER)
        assert not await knows(given, WHO)

    @pytest.mark.parametrize("status", LIVE)
    async def test_one_that_outlives_its_events_is_waited_for(
        self, given: Arranged, clock: ManualClock, status: SagaStatus
    ) -> None:
        one = await outliving(given, status=status)
        ended = await outliving(given, process_id="o-2", status=SagaStatus.completed)
        await given.append(*(personal(saga_id=each.id, to=()) for each in (one, ended)))
        clock.advance(25 * HOUR)
        await prune(given)
        page = await remembered(given)
        assert (page.sagas, page.waiting_sagas, page.last) == (1, frozenset({one.id}), max(one.id, ended.id))
        assert await given.store.sagas.get(one.id) == one
        assert await knows(given, WHO)
        done = following(one, status=SagaStatus.completed)
        assert await play(given, given.store.saga_scripts.write(done, [], was=1))
        assert (await remembered(given)).sagas == 1
        assert not await knows(given, WHO)

    async def test_what_is_remembered_of_a_saga_goes_with_it(self, given: Arranged, clock: ManualClock) -> None:
        one = await outliving(given, status=SagaStatus.completed)
        gone, other = saga("o-2"), await outliving(given, process_id="o-3")
        await given.append(
            personal(saga_id=one.id, to=()), personal(subjects=("nobody",), saga_id=gone.id, to=()),
            personal(subjects=(OTHER,), saga_id=other.id, to=()), personal(subjects=("no saga",), to=()),
        )  # fmt: skip
        clock.advance(25 * HOUR)
        await prune(given)
        rows = await given.run("SELECT subject FROM {}postlude_saga_subject ORDER BY subject")
        assert [row[0] for row in rows] == [WHO, OTHER]
        clock.advance(25 * HOUR)
        await prune(given)
        assert [row[0] for row in await given.run("SELECT subject FROM {}postlude_saga_subject")] == [OTHER]

    async def test_what_is_remembered_of_no_saga_is_forgotten(self, given: Arranged, clock: ManualClock) -> None:
        one = await outliving(given, status=SagaStatus.completed)
        await given.append(personal(saga_id=one.id, to=()))
        clock.advance(25 * HOUR)
        await prune(given)
        await given.run("DELETE FROM {}postlude_saga")
        assert (await remembered(given)).waiting_sagas == frozenset()
        assert not await knows(given, WHO)

    async def test_the_key_of_a_subject_is_dropped_once(self, given: Arranged) -> None:
        scripts = given.store.redaction_scripts
        assert not await play(given, scripts.shred(wanted()))
        await given.run(
            "INSERT INTO {}postlude_subject (subject, key_id, key) VALUES (:subject, 'k1', :key)",
            subject=wanted().subject,
            key=b"secret",
        )
        assert await play(given, scripts.shred(wanted()))
        assert not await play(given, scripts.shred(wanted()))
        rows = await given.run("SELECT key_id, key, shredded_at IS NOT NULL FROM {}postlude_subject")
        assert [tuple(map(bool, row)) for row in rows] == [(False, False, True)]
        assert [row["action"] for row in await given.store.records.audits(target=None, limit=10)] == ["shred"]
