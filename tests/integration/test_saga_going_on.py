"""A worker goes on with the next step of a saga at once: what it has written itself it need not find."""

from __future__ import annotations

import pytest

from postlude import Context, Err, Ok, Saga
from postlude.runtime.watch import Watch
from tests.saga_books import Order, books, start, told, write, written


@pytest.fixture
def blindness(monkeypatch):
    """When something is in it, no worker finds new rows any more."""
    blind: list[str] = []
    look = Watch.look

    async def look_or_not(watch: Watch) -> bool:
        return False if blind else await look(watch)

    monkeypatch.setattr(Watch, "look", look_or_not)
    return blind


def trip(blind: list[str], *, fails: bool = False) -> Saga[Order]:
    async def first(state: Order, ctx: Context) -> Ok[str]:
        blind.append(state.order)
        await write(ctx.tx, "first")
        return Ok("one")

    async def undo_first(state: Order, ctx: Context) -> None:
        await write(ctx.tx, f"undo {ctx.result}")

    async def second(state: Order, ctx: Context) -> Ok[str]:
        return Ok(f"{ctx.idempotency_key.rpartition(':')[2]} {ctx.correlation_id == str(ctx.saga_id)}")

    async def third(state: Order, ctx: Context) -> Ok[None] | Err[str]:
        await write(ctx.tx, "third")
        return Err("Full") if fails else Ok(None)

    return (
        Saga("trip", state=Order)
        .step(first, undo=undo_first)
        .step(second, undo=None, transactional=False)
        .step(third, undo=None)
    )


async def test_to_the_end(any_postgres_url, blindness) -> None:
    async with books(any_postgres_url) as app:
        saga = trip(blindness)
        app.sagas.register(saga)
        async with app.worker():
            saga_id = await start(app, saga, Order("o-1"))
            view = await app.sagas.wait(saga_id, timeout=30)
    assert (view.status, view.attempts) == ("completed", 0)
    assert await written(any_postgres_url) == ["first", "third"]
    assert [line for line in told(view) if "begun" in line] == ["begun first", "begun second", "begun third"]


async def test_and_all_the_way_back(any_postgres_url, blindness) -> None:
    async with books(any_postgres_url) as app:
        saga = trip(blindness, fails=True)
        app.sagas.register(saga)
        async with app.worker():
            saga_id = await start(app, saga, Order("o-1"))
            view = await app.sagas.wait(saga_id, timeout=30)
    assert (view.status, view.error) == ("compensated", "third:Full")
    assert await written(any_postgres_url) == ["first", "undo one"]
