"""Sagas that are stuck, and what operators do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from postlude import (
    ConfigurationError,
    Context,
    Err,
    Ok,
    Postlude,
    Reject,
    Saga,
    SagaNotFound,
    SagaRefused,
    Settings,
    Stuck,
)
from tests.engine import until
from tests.saga_books import PLACE, WHO, Order, books, failing, finish, release, reserve, ship, start, write, written


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with books(database_url) as app:
        yield app


def switched(switch: list[bool], word: str) -> Any:
    """A step or an undo that says Err until it is switched on."""

    async def act(state: Order, ctx: Context) -> Ok[str] | Err[str]:
        if not switch:
            return Err("Off")
        await write(ctx.tx, word)
        return Ok(word)

    return act


async def test_an_undo_that_says_err_needs_an_operator(app: Postlude, database_url: str) -> None:
    switch: list[bool] = []
    stuck: list[Stuck] = []
    app.sagas.on_stuck(stuck.append)
    saga = Saga("stubborn", state=Order).step(reserve, undo=switched(switch, "released"))
    saga = saga.step(failing(Reject("no")), undo=None)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"), id="o-1")
    assert (view.status, view.step, view.error) == ("stuck", "reserve", "fail:Reject")
    assert view.waits_for == (
        "an operator: the undo of reserve failed (Off); retry, or skip when it is undone by hand",
    )
    assert await app.sagas.wait(view.id, timeout=20) == view
    await until(lambda: stuck == [Stuck(view.id, "stubborn", "o-1", "reserve", "Off")])
    (audit,) = await app.insight.audits()
    assert (audit["action"], audit["target"], audit["reason"]) == ("saga stuck", str(view.id), "Off")
    switch.append(True)
    view = await app.sagas.retry(view.id, **WHO)
    assert view.status == "compensating"
    await app.drain()
    assert (await app.sagas.get(view.id)).status == "compensated"
    assert await written(database_url) == ["reserve o-1", "released"]
    audit = (await app.insight.audits())[0]
    assert (audit["action"], audit["actor"], audit["reason"]) == ("saga retry", "ann", "she looked")


async def test_an_undo_that_gives_up_can_be_skipped(app: Postlude) -> None:
    saga = Saga("stubborn", state=Order).step(reserve, undo=failing(RuntimeError("no")))
    saga = saga.step(failing(Reject("no")), undo=None)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    assert (view.status, view.attempts) == ("stuck", 1)
    with pytest.raises(SagaRefused, match="on its way back"):
        await app.sagas.compensate(view.id, **WHO)
    assert (await app.sagas.skip(view.id, step="reserve", **WHO)).status == "compensated"


async def test_a_step_behind_the_pivot_is_retried_skipped_or_given_up(app: Postlude, database_url: str) -> None:
    switch: list[bool] = []
    saga = Saga("late", state=Order).step(reserve, undo=release).pivot(ship).step(switched(switch, "sent"), name="send")
    app.sagas.register(saga)
    first, second, third = [await finish(app, saga, Order(f"o-{n}")) for n in range(3)]
    assert {one.status for one in (first, second, third)} == {"stuck"}
    assert first.error == "send:Off"
    with pytest.raises(SagaRefused, match="the pivot has begun"):
        await app.sagas.cancel(first.id, **WHO)
    switch.append(True)
    await app.sagas.retry(first.id, **WHO)
    assert (await app.sagas.skip(second.id, value={"by": "hand"}, **WHO)).status == "completed"
    await app.sagas.compensate(third.id, **WHO)
    await app.drain()
    assert (await app.sagas.get(first.id)).status == "completed"
    assert (await app.sagas.get(third.id)).status == "compensated"
    assert (await written(database_url)).count("release shelf 7") == 1


async def test_cancelling_goes_back_before_the_pivot_only(app: Postlude, database_url: str) -> None:
    app.sagas.register(PLACE)
    saga_id = await start(app, PLACE, Order("o-1"))
    await app.run_once()
    view = await app.sagas.cancel(saga_id, **WHO)
    assert (view.status, view.error) == ("compensating", "charge:Cancelled")
    await app.drain()
    view = await app.sagas.get(saga_id)
    assert view.status == "compensated"
    assert await written(database_url) == ["reserve o-1", "charge o-1", "refund 1", "release shelf 7"]
    with pytest.raises(SagaRefused, match="the saga is compensated already"):
        await app.sagas.cancel(saga_id, **WHO)


async def test_an_order_says_who_and_why_and_about_what(app: Postlude) -> None:
    app.sagas.register(PLACE)
    view = await finish(app, PLACE, Order("o-1"))
    with pytest.raises(ConfigurationError, match="an actor and a reason"):
        await app.sagas.retry(view.id, actor=" ", reason="x")
    with pytest.raises(SagaNotFound, match="there is no saga"):
        await app.sagas.retry("00000000-0000-0000-0000-000000000000", **WHO)
    with pytest.raises(SagaRefused, match="as a whole"):
        await app.sagas.cancel(view.id, step="charge", **WHO)
    with pytest.raises(SagaRefused, match="the saga is completed already"):
        await app.sagas.retry(view.id, **WHO)


def test_operators_without_an_event_loop(sqlite_url: str) -> None:
    switch: list[bool] = []

    async def send(state: Order, ctx: Context) -> Ok[str] | Err[str]:
        return Ok("sent") if switch else Err("Off")

    async def ship(state: Order, ctx: Context) -> Ok[None] | Err[str]:
        return Ok(None)

    saga = Saga("late", state=Order).pivot(ship).step(send, name="send")
    app = Postlude(sqlite_url, settings=Settings.load(environ={}))
    app.sagas.register(saga)
    with app.sync.transaction() as tx:
        ids = [app.sync.sagas.start(tx, saga, Order(f"o-{n}")) for n in range(4)]
    app.sync.drain()
    sagas = app.sync.sagas
    assert [sagas.wait(one, timeout=20).status for one in ids] == ["stuck"] * 4
    switch.append(True)
    assert sagas.retry(ids[0], **WHO).status == "running"
    assert sagas.skip(ids[1], value="by hand", **WHO).status == "completed"
    assert sagas.compensate(ids[2], **WHO).status == "compensated"
    with pytest.raises(SagaRefused, match="the pivot has begun"):
        sagas.cancel(ids[3], **WHO)
    app.sync.drain()
    assert sagas.get(ids[0]).status == "completed"
