"""Steps and sagas that miss their deadlines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from postlude import Postlude, Retry, Saga
from tests.saga_books import Order, books, failing, finish, is_quiet, release, reserve, told, written


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with books(database_url) as app:
        yield app


async def test_a_step_that_misses_its_deadline_is_undone_though_it_waits_to_be_tried_again(
    app: Postlude, database_url: str
) -> None:
    slow = failing(RuntimeError("not yet"))
    saga = Saga("hurried", state=Order).step(
        slow, undo=release, name="slow", deadline=timedelta(minutes=5), retry=Retry(base_delay=900, jitter=0)
    )
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    assert view.status == "running"
    app.clock.advance(301)
    await app.drain()
    view = await app.sagas.get(view.id)
    assert (view.status, view.error) == ("compensated", "slow:Deadline")
    assert await written(database_url) == ["release None"]
    app.clock.advance(900)
    await app.drain()
    assert await written(database_url) == ["release None"], "what is not wanted any more is not done"
    assert await is_quiet(app)


async def test_a_saga_that_misses_its_deadline_goes_back(app: Postlude, database_url: str) -> None:
    slow = failing(RuntimeError("not yet"))
    saga = Saga("hurried", state=Order, deadline=timedelta(hours=1)).step(reserve, undo=release)
    saga = saga.step(
        slow, undo=None, name="slow", retry=Retry(max_attempts=2, base_delay=7200, max_delay=7200, jitter=0)
    )
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    app.clock.advance(3601)
    await app.drain()
    view = await app.sagas.get(view.id)
    assert (view.status, view.error) == ("compensating", "slow:SagaDeadline"), "what runs is let end"
    app.clock.advance(7200)
    await app.drain()
    assert (await app.sagas.get(view.id)).status == "compensated"
    assert await written(database_url) == ["reserve o-1", "release shelf 7"]


async def test_deadlines_are_cancelled_at_the_end(app: Postlude) -> None:
    saga = Saga("timely", state=Order, deadline=timedelta(hours=1)).step(
        reserve, undo=release, deadline=timedelta(minutes=1)
    )
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    assert view.status == "completed"
    assert await is_quiet(app)
    app.clock.advance(7200)
    assert await app.drain() == 0
    assert told(await app.sagas.get(view.id)) == told(view)
