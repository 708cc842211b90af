"""Calls: requests about a subject, what is read of them, and how a call waits for a vendor's horizon."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

from msgspec.structs import replace

from postlude.core.delivery import Fence
from postlude.core.lifecycle import Status
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import CORRECTIONS, HORIZON, SUBJECT, NewGroup, Secret
from postlude.ports.store import Store
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, Undo, event, undone
from postlude.testing.contracts.call_arrange import (
    ERASE,
    MONTH,
    RECTIFY,
    VENDOR,
    WHOM,
    call,
    dead,
    die,
    opened,
    park,
    record_of,
    settle,
    stored,
    trail,
    under_way,
)
from postlude.testing.contracts.saga_arrange import now, play

MOMENT = 0.1
"""Long enough for what nothing holds back to be done; a slow machine only makes the test milder."""


class CallsContract(StoreUnderTest):
    async def test_requests_about_one_subject_wait_for_each_other(self, given: Arranged, other: Store) -> None:
        waiting = asyncio.Event()

        async def wait() -> None:
            waiting.set()
            async with other.transaction() as tx:
                await given.adapter.play(tx, other.call_scripts.lock_subject(WHOM, erases=False))

        async with given.store.transaction() as tx:
            await given.adapter.play(tx, given.store.call_scripts.lock_subject(WHOM, erases=True))
            task = asyncio.create_task(wait())
            await waiting.wait()
            finished, _ = await asyncio.wait({task}, timeout=MOMENT)
            assert not finished
        await task
        ((erasures, erased_at),) = await given.run("SELECT erasures, erased_at FROM {}postlude_subject")
        assert erasures == 1
        assert erased_at is not None, "a rectification does not take the mark of an erasure away"

    async def test_a_request_is_kept_whole(self, given: Arranged) -> None:
        group, ids = await opened(given, [call(), call(operation=RECTIFY)], tells=True)
        one = await stored(given, group)
        assert (one.subject, one.operation, one.generation) == (WHOM, ERASE, 1)
        assert (one.open, one.calls, one.discarded, one.completed_at, one.is_overdue) == (2, 2, 0, None, False)
        assert abs((one.deadline - one.created_at).total_seconds() - MONTH) < 1
        assert await given.store.calls.secrets(ids[0]) == {SUBJECT: b'{"subject_id": "ada"}'}
        assert (await given.store.calls.secrets(ids[1])).keys() == {SUBJECT, CORRECTIONS}
        assert await given.store.calls.secrets(uuid4()) == {}
        found = await given.store.calls.calls(limit=10)
        assert {each.entry_id for each in found} == set(ids)
        first = next(each for each in found if each.entry_id == ids[0])
        assert (first.destination, first.subject, first.secret) == (VENDOR, WHOM, b'{"subject_id": "ada"}')
        assert (first.status, first.attempts, first.error, first.attempted_at) == (Status.pending, 0, None, None)
        events = await given.store.reading.events(ids)
        assert events.keys() == set(ids)
        assert await trail(given) == [], "nothing is over"

    async def test_generations_count_by_subject_and_operation(self, given: Arranged) -> None:
        groups = [
            (await opened(given, n, whom=whom, operation=operation))[0]
            for whom, operation, n in (
                ("a", ERASE, 1),
                ("a", ERASE, 0),
                ("a", RECTIFY, 1),
                ("b", ERASE, 0),
                ("a", ERASE, 1),
            )
        ]
        assert [(await stored(given, one)).generation for one in groups] == [1, 2, 1, 1, 3]
        listed = await given.store.calls.groups(subject=None, is_overdue=False, limit=10)
        assert [one.id for one in listed] == [one.id for one in reversed(groups)]
        page = await given.store.calls.groups(subject=None, is_overdue=False, limit=2, after=listed[1].id)
        assert page == listed[2:4]
        assert await given.store.calls.groups(subject="c", is_overdue=False, limit=10) == []

    async def test_without_calls_it_is_complete_at_once(self, given: Arranged) -> None:
        quiet, _ = await opened(given, 0)
        telling, _ = await opened(given, 0, tells=True)
        for group in (quiet, telling):
            one = await stored(given, group)
            assert (one.open, one.calls, one.completed_at is not None) == (0, 0, True)
        assert await trail(given) == ["erasure_completed"] * 2
        ((event_id,),) = await given.run("SELECT event_id FROM {}postlude_delivery WHERE destination = 'route'")
        events = await given.run("SELECT type, correlation_id FROM {}postlude_event")
        assert events == [("postlude.erasure.completed", str(telling.id))], "only who asked to be told is told"
        assert event_id is not None

    async def test_what_is_rolled_back_never_was(self, given: Arranged) -> None:
        group = NewGroup(uuid4(), WHOM, ERASE, MONTH, True)
        scripts = given.store.call_scripts
        for calls in ([], [call()]):
            with undone():
                async with given.store.transaction() as tx:
                    await given.adapter.play(tx, scripts.lock_subject(WHOM, erases=True))
                    await given.adapter.play(tx, scripts.open_group(group, calls))
                    raise Undo
        for table in ("group", "secret", "event", "delivery", "subject", "audit"):
            assert await given.run(f"SELECT 1 FROM {{}}postlude_{table}") == [], table  # noqa: S608 - ours

    async def test_our_own_tables_may_know_a_subject(self, given: Arranged) -> None:
        await given.append(event(subjects=("ada",)))
        await given.run("INSERT INTO {}postlude_subject (subject, key) VALUES ('p-2', :key)", key=b"k")
        for subject_id, subject, known in (("ada", "p-1", True), ("bob", "p-1", False), ("bob", "p-2", True)):
            assert await play(given, given.store.call_scripts.knows_subject(subject_id, subject)) is known

    async def test_a_call_is_parked_by_its_owner_only(self, given: Arranged) -> None:
        _, (entry,) = await opened(given)
        fence = await given.own(VENDOR)
        (one,) = await under_way(given, fence)
        soon = await now(given.store) + timedelta(hours=1)
        horizon = {"until": soon, "least": 30.0, "horizon": b'"h"'}
        late = Fence(fence.worker, VENDOR, {lane: epoch - 1 for lane, epoch in fence.epochs.items()})
        for wrong, guard in (
            (late, one),
            (Fence(uuid4(), VENDOR, fence.epochs), one),
            (Fence(fence.worker, VENDOR, {}), one),
            (fence, replace(one, attempts=2)),
            (fence, replace(one, status=Status.failed)),
        ):
            assert await park(given, wrong, guard, **horizon) is None
        assert (await given.store.calls.secrets(entry)).keys() == {SUBJECT}
        until = await park(given, fence, one, **horizon)
        assert abs((until - soon).total_seconds()) < 0.001
        assert (await given.store.calls.secrets(entry))[HORIZON] == b'"h"'
        (parked,) = await given.store.calls.calls(status=Status.scheduled, limit=10)
        assert (parked.attempts, parked.error, parked.available_at) == (0, None, until)
        assert await park(given, fence, one, **horizon) is None, "it waits already"

    async def test_nothing_is_parked_for_less_than_a_step(self, given: Arranged, clock: ManualClock) -> None:
        _, (entry,) = await opened(given)
        fence = await given.own(VENDOR)
        (one,) = await under_way(given, fence)
        clock.advance(5.0)
        began = await now(given.store) + timedelta(seconds=0 if given.store.dialect == "sqlite" else 5)
        past = await now(given.store) - timedelta(days=400)
        until = await park(given, fence, one, until=past, least=30.0, horizon=b'"a"')
        assert timedelta(seconds=30) <= until - began < timedelta(seconds=45)
        clock.advance(60.0)
        (again,) = await under_way(given, fence)
        assert (again.attempts, again.status) == (1, Status.claimed), "a fresh budget"
        await park(given, fence, again, until=past, least=30.0, horizon=b'"b"')
        assert (await given.store.calls.secrets(entry))[HORIZON] == b'"b"'

    async def test_lists_have_their_orders(self, given: Arranged) -> None:
        _, ids = await opened(given, 4)
        fence = await given.own(VENDOR)
        rows = {one.event_id: one for one in await under_way(given, fence)}
        start = await now(given.store)
        for entry, hours in zip(ids[:3], (3, 1, 2), strict=True):
            until = start + timedelta(hours=hours)
            await park(given, fence, rows[entry], until=until, least=1.0, horizon=b'"h"')
        await die(given, fence, rows[ids[3]])
        await given.store.ownership.leave(fence.worker)
        _, late = await dead(given, whom="b")
        calls = given.store.calls

        async def order(status: Status | None, **which: object) -> list[object]:
            return [one.entry_id for one in await calls.calls(status=status, limit=10, **which)]  # type: ignore[arg-type] # as given

        assert await order(Status.scheduled) == [ids[1], ids[2], ids[0]], "the nearest first"
        assert await order(Status.dead) == [ids[3], *late], "the oldest first"
        assert await order(None, subject="b") == late
        assert await order(None, ids=[late[0], ids[0], uuid4()]) == [ids[0], late[0]]
        assert await order(None, ids=[]) == []
        assert [one.entry_id for one in await calls.calls(status=Status.scheduled, limit=1)] == [ids[1]]
        (oldest, _) = await calls.calls(status=Status.dead, limit=10)
        assert (oldest.error, oldest.attempts) == ('{"kind": "Refused"}', 1)
        assert oldest.attempted_at is not None

    async def test_what_is_overdue_is_known_by_its_deadline(self, given: Arranged, clock: ManualClock) -> None:
        later, _ = await opened(given, 2, whom="a", due=200.0)
        sooner, _ = await opened(given, 1, whom="b", due=100.0)
        await opened(given, 0, whom="c", due=1.0)
        await opened(given, 1, whom="d", due=MONTH)
        calls = given.store.calls
        assert await calls.overdue_counts() == (0, 0)
        clock.advance(300.0)
        found = await calls.groups(subject=None, is_overdue=True, limit=10)
        assert [one.id for one in found] == [sooner.id, later.id], "the longest first"
        assert all(one.is_overdue for one in found)
        assert await calls.overdue_counts() == (2, 3)
        assert len(await calls.groups(subject=None, is_overdue=True, limit=1)) == 1
        await opened(given, 0, whom="a", operation=RECTIFY)
        assert await calls.overdue_counts() == (2, 3), "that was another request"
        await opened(given, 0, whom="a")
        assert await calls.overdue_counts() == (1, 1), "a later one of its kind is complete"
        assert not (await stored(given, later)).is_overdue

    async def test_secrets_are_sealed_again_page_by_page(self, given: Arranged) -> None:
        _, ids = await opened(given, [call(operation=RECTIFY), call()])
        calls = given.store.calls
        found: list[Secret] = []
        while page := await calls.secrets_but(b"\x01k2\0", after=found[-1] if found else None, limit=2):
            found += page
        assert [(one.entry_id, one.part) for one in found] == sorted(
            [(ids[0], CORRECTIONS), (ids[0], SUBJECT), (ids[1], SUBJECT)]
        )
        pairs = [(one, replace(one, content=b"\x01k2\0" + one.content)) for one in found]
        changed_since = (replace(found[0], content=b"other"), replace(found[0], content=b"lost"))
        entry = AuditEntry(actor="ann", action="reseal", target="calls", reason="yearly", detail={"key": "k2"})
        assert await calls.reseal([changed_since], entry) == 0
        assert await calls.reseal(pairs, entry) == 3
        assert await calls.secrets_but(b"\x01k2\0", after=None, limit=10) == []
        assert await calls.secrets_but(b"\x01k", after=None, limit=10) == []
        assert len(await calls.secrets_but(b"\x01k3\0", after=None, limit=10)) == 3
        (record,) = await given.store.records.audits(target="calls", limit=10)
        assert (record["action"], record["detail"]) == ("reseal", {"key": "k2", "secrets": 3})

    async def test_counts_are_of_calls_only(self, given: Arranged) -> None:
        await given.append(event(), event(to=("handler:x",)))
        assert {name: n for name, n in (await given.store.calls.counts()).items() if n} == {}
        _, ids = await opened(given, 4)
        fence = await given.own(VENDOR)
        first, second, *_ = await under_way(given, fence)
        assert await settle(given, fence, first)
        await die(given, fence, second)
        await given.store.operating.act("discard", [second.event_id], actor="ann", reason="x", destination=None)
        counts = await given.store.calls.counts()
        assert {name: n for name, n in counts.items() if n} == {"claimed": 2, "sent": 1, "discarded": 1}
        assert len(ids) == 4

    async def test_the_trail_is_insert_only(self, given: Arranged, refusal: type[Exception]) -> None:
        await opened(given, 0)
        before = await record_of(given, "erasure_completed")
        denied = (refusal, Exception)
        for sql in ("UPDATE {}postlude_audit SET actor = 'eve'", "DELETE FROM {}postlude_audit"):
            try:
                await given.run(sql)
            except denied as error:
                assert "insert only" in str(error)  # noqa: PT017 - the drivers have no class in common
            else:
                raise AssertionError(sql)
        assert await record_of(given, "erasure_completed") == before
