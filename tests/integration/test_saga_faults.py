"""Sagas through lost connections, killed workers, other code and stalls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postlude import Context, Ok, Postlude, Saga, SagaRefused
from tests.engine import die, workers
from tests.saga_books import PLACE, WHO, Faults, Order, books, finish, is_quiet, release, reserve, ship, start, written


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with books(database_url) as app:
        yield app


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("after", [False, True], ids=["before-commit", "after-commit"])
@pytest.mark.parametrize("total", [5, 500], ids=["forward", "back"])
async def test_a_lost_connection_at_any_commit_changes_nothing(database_url: str, total: int, *, after: bool) -> None:
    async with books(database_url) as app:
        app.sagas.register(PLACE)
        faults = Faults(app)
        expected = 4 if total == 5 else 2
        for nth in range(1, 7):
            saga_id = await start(app, PLACE, Order(f"o-{nth}", total))
            faults.strike(nth, after=after)
            await app.drain()
            faults.strike(0, after=after)
            view = await app.sagas.get(saga_id)
            assert view.status == ("completed" if total == 5 else "compensated")
            assert len(await written(database_url)) == expected * nth, f"at commit {nth}"
        assert faults.struck >= 3
        assert await is_quiet(app)


async def test_another_worker_goes_on_where_one_was_killed(app: Postlude, database_url: str) -> None:
    begun, never = asyncio.Event(), asyncio.Event()
    keys: list[str] = []

    async def call(state: Order, ctx: Context) -> Ok[None]:
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            begun.set()
            await never.wait()
        return Ok(None)

    saga = Saga("calling", state=Order).step(call, undo=None, transactional=False).step(reserve, undo=release)
    app.sagas.register(saga)
    saga_id = await start(app, saga, Order("o-1"))
    async with workers(app, 2) as (first, second):
        doomed = asyncio.create_task(first.drain_once())
        await begun.wait()
        await die(first)
        doomed.cancel()
        app.clock.advance(400)
        await second.tick()
        while (await app.sagas.get(saga_id)).status == "running":
            await second.drain_once()
        assert (await app.sagas.get(saga_id)).status == "completed"
    assert keys == [f"{saga_id}:call"] * 2
    assert await written(database_url) == ["reserve o-1"]


# ---------------------------------------------------------------- other code


async def test_code_that_cannot_continue_a_run_leaves_it_alone(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with books(database_url) as old:
        old.sagas.register(PLACE)
        saga_id = await start(old, PLACE, Order("o-1"))
        async with books(database_url) as new:
            changed = Saga("place", state=Order).step(ship, undo=None).step(reserve, undo=release)
            new.sagas.register(changed)
            assert await new.drain() == 0
            assert "was begun and now stands in another place: it is left alone" in caplog.text
            view = await new.sagas.get(saga_id)
            assert view.waits_for == (
                "code that can continue it: step reserve was begun and now stands in another place",
            )
            with pytest.raises(SagaRefused, match="was begun by other code"):
                await new.sagas.cancel(saga_id, **WHO)
            assert (await new.insight.counts())["dead"] == 0
        old.clock.advance(60)
        await old.drain()
        assert (await old.sagas.get(saga_id)).status == "completed"


async def test_what_lies_ahead_may_change(database_url: str) -> None:
    async with books(database_url) as old, books(database_url) as new:
        old.sagas.register(PLACE)
        saga_id = await start(old, PLACE, Order("o-1"))
        new.sagas.register(Saga("place", state=Order).step(reserve, undo=release).step(ship, undo=None))
        await new.drain()
        assert (await new.sagas.get(saga_id)).status == "completed"
        assert await written(database_url) == ["reserve o-1", "ship 0"]


# ---------------------------------------------------------------- stalls


async def test_a_run_with_nothing_on_its_way_is_found_and_explained(
    app: Postlude, caplog: pytest.LogCaptureFixture
) -> None:
    app.sagas.register(PLACE)
    saga_id = await start(app, PLACE, Order("o-1"))
    await start(app, PLACE, Order("o-2"))
    (event,) = (await app.insight.list(saga=saga_id)).items
    await app.actions.discard([event.event_id], **WHO)
    app.clock.advance(3600)
    (duty,) = [one for one in app.engine.duties() if one.name == "duty:stalls"]
    assert (await duty.round()).rows == 1
    assert "is stalled: the work of reserve is not on its way any more" in caplog.text
    await app.sagas.retry(saga_id, step="reserve", **WHO)
    assert (await duty.round()).rows == 0
    await app.drain()
    assert (await app.sagas.get(saga_id)).status == "completed"


async def test_two_statements_a_step(any_postgres_url: str) -> None:
    async def nothing(state: Order, ctx: Context) -> Ok[None]:
        return Ok(None)

    async with books(any_postgres_url) as app:
        sent = _count_statements(app)
        saga = Saga("idle", state=Order)
        for n in range(3):
            saga = saga.step(nothing, undo=None, name=f"s{n}")
        app.sagas.register(saga)
        await finish(app, saga, Order("warm"))
        sent.clear()
        saga_id = await start(app, saga, Order("o-1"))
        assert _own(sent) == 1, sent
        sent.clear()
        await app.drain()
        assert (await app.sagas.get(saga_id)).status == "completed"
        assert _own(sent) == 2 * 3, sent


def _own(sent: list[str]) -> int:
    return sum("postlude" in statement for statement in sent)


def _count_statements(app: Postlude) -> list[str]:
    """What is sent inside transactions of the store's own. Before the first worker is made."""
    sent: list[str] = []
    begin = app.store.transaction

    @asynccontextmanager
    async def counted() -> AsyncIterator[Any]:
        async with begin() as handle:
            handle.add_query_logger(listen)
            try:
                yield handle
                await asyncio.sleep(0)  # loggers are called by the loop
            finally:
                handle.remove_query_logger(listen)

    def listen(record: Any) -> None:
        sent.append(record.query)

    app.store.transaction = counted  # type: ignore[method-assign]
    return sent
