"""Reading sagas: lists, counts, what stalls; and how long the ended ones are kept."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace

from postlude.core.lifecycle import Status
from postlude.core.saga.instance import Phase, SagaStatus
from postlude.ports.sagas import SagaFilter
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest
from postlude.testing.contracts.saga_arrange import (
    BEGAN,
    LIVE,
    MINE,
    NAME,
    STEPS,
    following,
    lines,
    now,
    on_its_way,
    play,
    saga,
    started,
    write,
)

HOUR = 3600.0


class SagaReadingContract(StoreUnderTest):
    async def test_a_row_of_a_list_has_every_column_but_the_body(self, given: Arranged) -> None:
        one = saga(error="charge:Refused")
        await started(given, one)
        (row,) = await given.store.sagas.list(SagaFilter(), limit=10)
        same = ("id", "name", "process_id", "generation", "status", "version", "hash", "error")
        times = ("created_at", "updated_at", "ended_at")
        assert row == {name: getattr(one, name) for name in (*same, *times)} | {"step": "charge"}

    async def test_a_list_says_what_a_saga_is_at(self, given: Arranged) -> None:
        reserve, charge, ship = STEPS
        undoing = (replace(reserve, phase=Phase.undoing), replace(charge, phase=Phase.failed), ship)
        sagas = {
            "charge": saga("running"),
            "reserve": saga("back", status=SagaStatus.compensating, turned=True, steps=undoing),
            "ship": saga("next", steps=(reserve, replace(charge, phase=Phase.done), ship)),
            None: saga("over", status=SagaStatus.completed),
        }
        refused = saga("refused", status=SagaStatus.stuck, steps=(reserve, replace(charge, phase=Phase.failed), ship))
        await started(given, *sagas.values(), refused)
        rows = await given.store.sagas.list(SagaFilter(), limit=10)
        found = {row["process_id"]: row["step"] for row in rows}
        assert found == {one.process_id: step for step, one in sagas.items()} | {"refused": "charge"}

    async def test_lists_are_filtered(self, given: Arranged) -> None:
        later = BEGAN + timedelta(microseconds=1)
        old, new = saga("a"), saga("b", at=later, status=SagaStatus.stuck)
        elsewhere = saga("a", at=later, name="other")
        await started(given, old, new, elsewhere)
        assert await _listed(given, name=NAME) == {old.id, new.id}
        assert await _listed(given, status="stuck") == {new.id}
        assert await _listed(given, process_id="a") == {old.id, elsewhere.id}
        assert await _listed(given, since=later) == {new.id, elsewhere.id}
        assert await _listed(given, until=later) == {old.id}
        assert await _listed(given, name=NAME, since=later, status="running") == set()

    async def test_pages_neither_skip_nor_repeat(self, given: Arranged) -> None:
        """Many began at one moment, all go on meanwhile, and the last of a page is gone before the next."""
        moments = [BEGAN + timedelta(microseconds=n // 4) for n in range(12)]
        sagas = [saga(f"o-{n}", at=at) for n, at in enumerate(moments)]
        await started(given, *sagas)
        seen: list[UUID] = []
        after: tuple[datetime, UUID] | None = None
        while rows := await given.store.sagas.list(SagaFilter(name=NAME), after=after, limit=5):
            seen += [row["id"] for row in rows]
            after = rows[-1]["created_at"], rows[-1]["id"]
            sagas = [following(one) for one in sagas]
            for one in sagas:
                await write(given, one)
            await given.run("DELETE FROM {}postlude_saga WHERE process_id = :gone", gone=rows[-1]["process_id"])
        newest_first = sorted(sagas, key=lambda one: (one.created_at, one.id), reverse=True)
        assert seen == [one.id for one in newest_first]

    async def test_counts_are_by_name_and_status(self, given: Arranged) -> None:
        assert await given.store.sagas.counts() == []
        ended = SagaStatus.completed
        await started(given, saga("a"), saga("b"), saga("c", status=ended), saga("a", name="other"))
        assert await given.store.sagas.counts() == [
            {"name": "other", "status": "running", "count": 1},
            {"name": NAME, "status": "completed", "count": 1},
            {"name": NAME, "status": "running", "count": 2},
        ]

    async def test_live_ones_come_in_pages(self, given: Arranged) -> None:
        live = [saga(f"o-{n}", status=status) for n, status in enumerate(LIVE)]
        await started(given, *live, saga("o-9", status=SagaStatus.compensated), saga("o-8", name="other"))
        sagas = given.store.sagas
        assert await sagas.live(NAME, limit=2) == live[:2]
        assert await sagas.live(NAME, after=live[1].process_id, limit=2) == live[2:]
        assert await sagas.live(NAME, after=live[2].process_id, limit=2) == []

    async def test_those_with_nothing_on_its_way_have_stalled(self, given: Arranged, clock: ManualClock) -> None:
        at = await now(given.store)
        fence = await given.own(MINE)
        idle, dead = saga("idle", at=at), saga("dead", at=at + timedelta(seconds=1), status=SagaStatus.compensating)
        settled = saga("settled", at=at + timedelta(seconds=2))
        await started(given, idle, dead, settled)
        await on_its_way(given, dead.id)
        await given.fail(fence, *await given.pending(MINE), status=Status.dead)
        await on_its_way(given, settled.id)
        await given.store.settling.settle_sent(fence, await given.pending(MINE))
        await on_its_way(given, uuid4())
        await self._not_stalled(given, at)
        stalled = given.store.sagas.stalled
        assert await stalled(older_than=60.0, limit=10) == []
        clock.advance(90)
        assert await stalled(older_than=60.0, limit=10) == [idle, dead, settled]
        assert await stalled(older_than=60.0, limit=2) == [idle, dead]

    async def _not_stalled(self, given: Arranged, at: datetime) -> None:
        """Something is open for them, or nothing need be."""
        fence = await given.own("handler:shop")
        pending, due, failed, claimed = (saga(name, at=at) for name in ("pending", "due", "failed", "claimed"))
        fresh = saga("fresh", at=at + timedelta(seconds=80))
        over = (saga("stuck", at=at, status=SagaStatus.stuck), saga("end", at=at, status=SagaStatus.completed))
        await started(given, pending, due, failed, claimed, fresh, *over)
        await on_its_way(given, failed.id, "handler:shop")
        await given.fail(fence, *await given.pending("handler:shop"))
        await on_its_way(given, claimed.id, "handler:shop")
        await given.store.settling.start(fence, await given.pending("handler:shop"), 5.0)
        await on_its_way(given, pending.id, "broker")
        await on_its_way(given, due.id, available_at=at + timedelta(days=1))

    async def test_ended_ones_go_after_their_time_with_their_history(self, given: Arranged, clock: ManualClock) -> None:
        at = await now(given.store)
        ended = [saga(f"o-{n}", at=at, status=SagaStatus.completed) for n in range(5)]
        kept = saga("o-9", at=at), saga("o-8", at=at, status=SagaStatus.stuck)
        late = saga("o-7", at=at + timedelta(hours=2), status=SagaStatus.compensated)
        for one in (*ended, *kept, late):
            assert await write(given, one, lines("started", "begun"))
        assert await _prune(given) == 0
        clock.advance(25 * HOUR)
        assert await _prune(given, hours=0) == 0
        assert [await _prune(given, limit=3) for _ in range(3)] == [3, 2, 0]
        left = await given.store.sagas.list(SagaFilter(), limit=10)
        assert {row["id"] for row in left} == {one.id for one in (*kept, late)}
        assert await given.run("SELECT count(*) FROM {}postlude_saga_step") == [(6,)]
        assert await given.store.sagas.get(ended[0].id) is None
        await play(given, given.store.saga_scripts.note(ended[0].id, 2, lines("late")))
        assert await given.store.sagas.history(ended[0].id, limit=10) == []
        assert await write(given, saga("o-0")), "and its process may run again"


async def _listed(given: Arranged, **which: Any) -> set[UUID]:
    return {row["id"] for row in await given.store.sagas.list(SagaFilter(**which), limit=10)}


async def _prune(given: Arranged, *, hours: int = 24, limit: int = 100) -> int:
    return await given.store.upkeep.prune(events_hours=hours, dead_hours=0, limit=limit)
