"""Bulk actions: they end, they go on after an interruption, they keep order, and one of a kind runs at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from postlude import Filter, NotFound, Postlude
from postlude.core.outcome import Fault, Rejected
from postlude.errors import OperationRunning
from postlude.insight import bulk
from postlude.ports.operating import Operation
from tests.engine import Noted, note, published, routed_app

WHO: dict[str, Any] = {"actor": "ann", "reason": "tests"}


class Killed(BaseException):
    """Nothing of ours catches it, as nothing catches a kill."""


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 10)


async def dead_letters(app: Postlude, count: int) -> None:
    app.broker().fate = lambda message: Rejected(Fault("Bad"))
    async with app.transaction() as tx:
        await app.outbox.append_many(tx, [Noted(key=f"k{n}", n=n) for n in range(count)])
    await app.drain()
    app.broker().fate = None


def killed_after(pages: int) -> Any:
    """Whoever is told is killed after so many pages."""
    told: list[Operation] = []

    def tell(operation: Operation) -> None:
        if operation.done:
            told.append(operation)
        if len(told) == pages:
            raise Killed

    return tell


async def interrupt(app: Postlude, pages: int = 2) -> Operation:
    with pytest.raises(Killed):
        await app.actions.requeue(Filter(status="dead"), told=killed_after(pages), **WHO)
    (running,) = await app.insight.operations(status="running")
    return running


async def requeued(app: Postlude) -> list[str]:
    return [one["target"] for one in await app.insight.audits(limit=1000) if one["action"] == "requeue"]


async def test_a_bulk_action_is_told_page_by_page_and_ends(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await dead_letters(app, 25)
        told: list[Operation] = []
        changed = await app.actions.requeue(Filter(), told=told.append, **WHO)
        assert len(changed) == 25
        assert [one.done for one in told] == [0, 10, 20, 25, 25]
        (ended,) = await app.insight.operations()
        assert (ended.status, ended.done, ended.total, ended.cursor) == ("done", 25, 25, told[-1].cursor)
        assert ended.ended_at is not None
        assert await app.drain() == 25
        assert await app.actions.requeue(Filter(), **WHO) == []
        assert len(await app.insight.operations()) == 1, "nothing to do leaves nothing behind"


async def test_an_interrupted_operation_goes_on_where_it_stood(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await dead_letters(app, 25)
        running = await interrupt(app)
        assert (running.done, running.total) == (20, 25)
        with pytest.raises(OperationRunning, match=f"{running.id}: 20 of 25") as refused:
            await app.actions.requeue(Filter(status="dead"), **WHO)
        assert f"postlude operation resume {running.id}" in refused.value.hint
        ended = await app.actions.resume_operation(running.id, actor="bob")
        assert (ended.status, ended.done, ended.actor) == ("done", 25, "ann")
        targets = await requeued(app)
        assert len(targets) == len(set(targets)) == 25
        (resumed,) = await app.insight.audits(target=str(running.id))
        assert (resumed["action"], resumed["actor"]) == ("resume_operation", "bob")
        assert await app.drain() == 25
        again = await app.actions.resume_operation(str(running.id), actor="bob")
        assert again == await app.insight.operation(running.id) == ended


async def test_a_cancelled_operation_leaves_the_rest_alone(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await dead_letters(app, 25)
        running = await interrupt(app, pages=1)
        assert await app.actions.cancel_operation(running.id, actor="bob", reason="the wrong one")
        assert not await app.actions.cancel_operation(running.id, actor="bob", reason="the wrong one")
        assert (await app.actions.resume_operation(running.id, actor="bob")).status == "cancelled"
        assert (await app.insight.counts())["dead"] == 15
        assert len(await app.actions.requeue(Filter(status="dead"), **WHO)) == 15, "another may begin"
        with pytest.raises(NotFound):
            await app.insight.operation("01a1de6f-f06c-727d-9ebe-fa88701fcf97")


async def test_two_that_run_the_same_operation_share_its_pages(database_url: str) -> None:
    async with routed_app(database_url) as app, routed_app(database_url) as other:
        await dead_letters(app, 95)
        running = await interrupt(app, pages=1)
        both = await asyncio.gather(
            app.actions.resume_operation(running.id, actor="ann"),
            other.actions.resume_operation(running.id, actor="bob"),
        )
        assert [(one.status, one.done) for one in both] == [("done", 95)] * 2
        targets = await requeued(app)
        assert len(targets) == len(set(targets)) == 95


async def test_an_operation_ends_although_work_dies_as_fast_as_it_goes(database_url: str) -> None:
    """It takes what was there: a dead letter that came later waits for the next one."""
    async with routed_app(database_url) as app:
        await dead_letters(app, 15)
        late: list[int] = []

        def tell(_: Operation) -> None:
            late.append(1)

        planned = await app.actions.bulk.plan("requeue", Filter(status="dead"), **WHO)
        await dead_letters(app, 5)
        ended, changed = await app.actions.bulk.start(planned, tell)
        assert (ended.done, len(changed)) == (15, 15)
        assert (await app.insight.counts())["dead"] == 5
        assert len(late) == 4


async def test_a_replay_keeps_the_order_of_every_key_over_all_pages(database_url: str) -> None:
    async with routed_app(database_url) as app:
        for start in range(0, 60, 12):
            async with app.transaction() as tx:
                some = [Noted(key="ab"[n % 2], n=n) for n in range(start, start + 12)]
                await app.outbox.append_many(tx, some)
        await app.drain()
        before = {key: published(app, key) for key in "ab"}
        with pytest.raises(Killed):
            await app.actions.replay(Filter(type="test.noted"), to="default", told=killed_after(2), **WHO)
        (running,) = await app.insight.operations(status="running")
        assert 0 < running.done < 60
        ended = await app.actions.resume_operation(running.id, actor="ann")
        assert (ended.done, ended.total, ended.destination) == (60, 60, "default")
        await app.drain()
        for key in "ab":
            assert published(app, key)[-30:] == before[key] == sorted(before[key])


async def test_a_replay_reaches_events_that_were_only_recorded_or_are_open_elsewhere(database_url: str) -> None:
    app = routed_app(database_url)
    app.route(Noted, to="other")
    async with app:
        await note(app, "a", 1)
        await app.drain()
        await note(app, "a", 2)
        await app.actions.discard(Filter(destination="other"), **WHO)
        assert len(await app.actions.replay(Filter(), to="other", **WHO)) == 2
        await app.drain()
        assert sorted(published(app, broker="other")) == [1, 1, 2]
