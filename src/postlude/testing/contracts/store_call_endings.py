"""How calls end: whoever ends one, its secrets go, its group counts down, and the last one completes it, once."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import uuid4

import msgspec
import pytest

from postlude.core.lifecycle import Status
from postlude.ports.calls import CORRECTIONS, SUBJECT, VERIFICATION
from postlude.ports.operating import Operation
from postlude.ports.records import Filter
from postlude.ports.store import Store
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES, Arranged, StoreUnderTest, Undo, undone
from postlude.testing.contracts.call_arrange import (
    RECTIFY,
    VENDOR,
    WHO,
    WHOM,
    call,
    dead,
    die,
    opened,
    record_of,
    settle,
    stored,
    trail,
    under_way,
)
from postlude.testing.contracts.saga_arrange import play


class CallEndingsContract(StoreUnderTest):
    async def test_the_last_settle_completes_its_group(self, given: Arranged) -> None:
        group, ids = await opened(given, 2, tells=True)
        fence = await given.own(VENDOR)
        first, second = await under_way(given, fence)
        assert await settle(given, fence, first)
        assert not await settle(given, fence, first), "it is settled"
        one = await stored(given, group)
        assert (one.open, one.completed_at) == (1, None)
        assert await given.store.calls.secrets(first.event_id) == {}
        assert (await given.store.calls.secrets(second.event_id)).keys() == {SUBJECT}
        with undone():
            async with given.store.transaction() as tx:
                await given.adapter.play(tx, given.store.scripts.settle_handled(fence, second, 15.0))
                raise Undo
        assert (await stored(given, group)).open == 1
        assert await trail(given) == []
        assert await settle(given, fence, second)
        one = await stored(given, group)
        assert (one.open, one.discarded, one.completed_at is not None) == (0, 0, True)
        said = {"group": str(group.id), "generation": 1, "calls": 2, "discarded": 0}
        assert (await record_of(given, "erasure_completed"))["detail"] == said
        ((payload, type_),) = await given.run(
            "SELECT e.payload, e.type FROM {}postlude_event e JOIN {}postlude_delivery d ON d.event_id = e.event_id"
        )
        assert type_ == "postlude.erasure.completed"
        assert msgspec.json.decode(payload) == said | {"subject": WHOM}
        assert await given.run("SELECT 1 FROM {}postlude_secret") == []
        assert len(ids) == 2

    async def test_a_dead_call_is_open_and_without_corrections(self, given: Arranged) -> None:
        group, (entry,) = await dead(given, operation=RECTIFY, tells=True)
        assert (await stored(given, group)).open == 1
        assert (await given.store.calls.secrets(entry)).keys() == {SUBJECT}
        record = await record_of(given, "rectification_step_failed")
        assert record["detail"] == {
            "entry_id": str(entry), "resolver": "vendor", "abandoned": True, "attempts": 1, "error": "Refused",
            "generation": 1,
        }  # fmt: skip
        ((old, new),) = await given.run("SELECT old_status, new_status FROM {}postlude_audit")
        assert (old, new) == ("claimed", "dead")
        assert await given.run("SELECT 1 FROM {}postlude_delivery WHERE destination = 'route'") == []

    @pytest.mark.parametrize("status", ["pending", "dead"])
    async def test_a_discard_completes_and_says_so(self, given: Arranged, status: str) -> None:
        group, (entry,) = await (opened if status == "pending" else dead)(given)
        assert await given.store.operating.act("discard", [entry], **WHO, destination=None) == [entry]
        one = await stored(given, group)
        assert (one.open, one.discarded, one.completed_at is not None) == (0, 1, True)
        assert (await record_of(given, "erasure_completed"))["detail"]["discarded"] == 1
        assert await given.store.calls.secrets(entry) == {}
        assert await given.store.operating.act("discard", [entry], **WHO, destination=None) == []
        assert Counter(await trail(given))["erasure_completed"] == 1

    async def test_burying_abandons(self, given: Arranged) -> None:
        group, (entry,) = await opened(given, operation=RECTIFY)
        assert await given.store.operating.act("bury", [entry], **WHO, destination=None) == [entry]
        assert (await stored(given, group)).open == 1
        assert (await given.store.calls.secrets(entry)).keys() == {SUBJECT}
        assert await trail(given) == ["rectification_step_failed"]

    async def test_retention_of_dead_letters_leaves_abandoned_calls_alone(
        self, given: Arranged, clock: ManualClock
    ) -> None:
        group, _ = await dead(given, 2)
        clock.advance(6 * 3600.0)
        assert await given.store.upkeep.prune(events_hours=0, dead_hours=4, limit=10) == 0
        one = await stored(given, group)
        assert (one.open, one.discarded, one.completed_at) == (2, 0, None)
        assert "erasure_completed" not in await trail(given)

    async def test_an_older_generation_that_is_dead_holds_nothing_up(self, given: Arranged) -> None:
        old, _ = await dead(given)
        new, _ = await opened(given, tells=True)
        fence = await given.own(VENDOR)
        (one,) = await under_way(given, fence)
        assert await settle(given, fence, one)
        assert (await stored(given, new)).completed_at is not None
        assert (await stored(given, old)).completed_at is None
        assert (await record_of(given, "erasure_completed"))["detail"]["generation"] == 2

    async def test_of_many_settles_at_once_one_completes(self, given: Arranged, other: Store) -> None:
        groups, size = (60, 5) if given.store.dialect == "postgres" else (8, 5)
        made = [
            await opened(given, [call(f"s-{n}", lane=n % LANES) for _ in range(size)], whom=f"s-{n}")
            for n in range(groups)
        ]
        fence = await given.own(VENDOR)
        found = []
        while batch := await under_way(given, fence):
            found += batch
        assert len(found) == groups * size
        found.sort(
            key=lambda one: (one.seq % size, one.seq)
        )  # calls of one group come from several connections at once
        shares = [found[n::4] for n in range(4)]

        async def work(n: int) -> int:
            store = given.store if n % 2 else other
            return sum([await settle(given, fence, one, store) for one in shares[n]])

        assert sum(await asyncio.gather(*map(work, range(4)))) == groups * size
        listed = await given.store.calls.groups(subject=None, is_overdue=False, limit=1000)
        assert {(one.open, one.discarded, one.completed_at is not None) for one in listed} == {(0, 0, True)}
        records = await given.run("SELECT target, count(*) FROM {}postlude_audit GROUP BY target")
        assert sorted(records) == sorted((f"subject:s-{n}", 1) for n in range(groups))
        assert await given.run("SELECT 1 FROM {}postlude_secret") == []
        assert len(made) == groups

    async def test_dead_erasures_are_requeued_with_a_fresh_budget(self, given: Arranged) -> None:
        group, ids = await dead(given, 2)
        _, lost = await dead(given, whom="c", operation=RECTIFY)
        _, open_ids = await opened(given, whom="b")
        calls = given.store.calls
        everything = [*ids, *open_ids, *lost, uuid4()]
        assert set(await calls.requeue(everything, **WHO)) == set(ids)
        assert await calls.requeue(everything, **WHO) == [], "nothing is dead any more"
        assert await calls.requeue([], **WHO) == []
        again = await calls.calls(status=Status.failed, limit=10)
        assert {one.entry_id for one in again} == set(ids)
        assert {(one.attempts, one.error) for one in again} == {(0, None)}
        assert [one.entry_id for one in await calls.calls(status=Status.dead, limit=10)] == lost
        assert Counter(await trail(given))["erasure_requeued"] == 2
        assert "rectification_requeued" not in await trail(given, "c")
        fence = await given.own(VENDOR)
        rows = [one for one in await under_way(given, fence) if one.event_id in ids]
        assert len(rows) == 2, "due at once"
        await die(given, fence, rows[0])
        assert await settle(given, fence, rows[1])
        assert (await stored(given, group)).open == 1
        detail = (await given.store.records.audits(target=f"subject:{WHOM}", limit=100))[-1]["detail"]
        assert set(detail) >= {"entry_id", "resolver"}

    async def test_rivals_requeue_a_call_once(self, given: Arranged, other: Store) -> None:
        _, ids = await dead(given, 3)
        stores = (given.store, other, given.store, other)
        found = await asyncio.gather(*(store.calls.requeue(ids, **WHO) for store in stores))
        assert sorted(map(len, found)) == [0, 0, 0, 3]
        assert Counter(await trail(given))["erasure_requeued"] == 3

    async def test_what_operators_do_to_any_delivery_holds_for_calls(self, given: Arranged) -> None:
        erased, (erase,) = await dead(given)
        _, (rectify,) = await dead(given, whom="b", operation=RECTIFY)
        act = given.store.operating.act
        assert await act("requeue", [erase, rectify], **WHO, destination=None) == [erase], "the corrections are gone"
        assert [one.entry_id for one in await given.store.calls.calls(status=Status.dead, limit=9)] == [rectify]
        fence = await given.own(VENDOR)
        await die(given, fence, *await under_way(given, fence))
        for action, changed in (("requeue", [erase]), ("discard", [erase, rectify])):
            assert set(await _in_bulk(given, action)) == set(changed)
        assert (await stored(given, erased)).completed_at is not None
        assert await given.store.calls.calls(limit=10) == []
        assert await given.run("SELECT 1 FROM {}postlude_secret") == []

    @pytest.mark.parametrize("ending", ["settled", "discarded", "given up as a dead letter"])
    async def test_a_verification_follows_its_call_and_belongs_to_no_group(
        self, given: Arranged, clock: ManualClock, ending: str
    ) -> None:
        group, (entry,) = await opened(given)
        fence = await given.own(VENDOR)
        (one,) = await under_way(given, fence)
        scripts = given.store.scripts
        async with given.store.transaction() as tx:
            assert await given.adapter.play(tx, scripts.settle_handled(fence, one, 15.0))
            await given.adapter.play(tx, given.store.call_scripts.append_verification(fence, one, b"{}"))
        done = await stored(given, group)
        assert (done.open, done.discarded, done.completed_at is not None) == (0, 0, True)
        assert await given.store.calls.secrets(entry) == {VERIFICATION: b"{}"}
        assert await given.store.calls.calls(limit=10) == []
        (following,) = await under_way(given, fence)
        assert (following.event_id, following.lane, following.key) == (entry, one.lane, None)
        if ending == "settled":
            assert await settle(given, fence, following)
        else:
            await die(given, fence, following)
            assert (await given.store.calls.secrets(entry)).keys() == {VERIFICATION}, "it may be requeued"
            if ending == "discarded":
                assert await given.store.operating.act("discard", [entry], **WHO, destination=None) == [entry]
            else:
                clock.advance(6 * 3600.0)
                assert await given.store.upkeep.prune(events_hours=0, dead_hours=4, limit=10) == 1
        assert await given.run("SELECT 1 FROM {}postlude_secret") == []
        assert await stored(given, group) == done
        assert Counter(await trail(given)) == {"erasure_completed": 1}

    async def test_a_settle_of_an_older_epoch_completes_nothing(self, given: Arranged) -> None:
        group, (entry,) = await opened(given, operation=RECTIFY)
        fence = await given.own(VENDOR)
        (one,) = await under_way(given, fence)
        await given.store.ownership.leave(fence.worker)
        await given.own(VENDOR)
        assert not await play(given, given.store.scripts.settle_handled(fence, one, 15.0))
        assert (await stored(given, group)).open == 1
        assert (await given.store.calls.secrets(entry)).keys() == {SUBJECT, CORRECTIONS}


async def _in_bulk(given: Arranged, action: str) -> list[object]:
    operations = given.store.operations
    which = Filter(status=None if action == "discard" else "dead", destination=VENDOR)
    made = Operation(
        id=uuid4(),
        action=action,
        filter=which,
        actor="ann",
        reason="fixed",
        last_seq=await given.store.reading.last_seq(),
    )
    begun = await operations.begin(made)
    page = await operations.page(
        begun, ["pending", "failed", "scheduled", "dead"] if action == "discard" else ["dead"], 10
    )
    changed = await operations.act(begun, page)
    assert changed is not None
    current = await operations.get(begun.id)
    assert current is not None
    assert await operations.end(current, "done", **WHO)
    return list(changed)
