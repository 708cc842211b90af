"""Plain sagas, driven through the app: forward and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from postlude import ConfigurationError, Context, Ok, Postlude, Reject, Retry, Saga, SagaNotFound, SagaRefused, step
from tests.saga_books import (
    PLACE,
    Order,
    books,
    charge,
    failing,
    finish,
    is_quiet,
    refund,
    release,
    reserve,
    ship,
    start,
    told,
    write,
    written,
)


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with books(database_url) as app:
        yield app


# ---------------------------------------------------------------- forward


async def test_steps_run_one_after_the_other_to_the_end(app: Postlude, database_url: str) -> None:
    app.sagas.register(PLACE)
    saga_id = await start(app, PLACE, Order("o-1", 5))
    view = await app.sagas.get(saga_id)
    assert (view.status, view.step, view.attempts) == ("running", "reserve", 1)
    assert view.remaining == ("reserve", "charge", "ship", "mail")
    assert view.waits_for == ("reserve: its handler (attempt 1)",)
    assert await app.drain() == 4
    view = await app.sagas.wait(saga_id, timeout=20)
    assert (view.status, view.step, view.error, view.remaining) == ("completed", None, None, ())
    assert view.state == {"order": "o-1", "total": 6}
    assert await written(database_url) == ["reserve o-1", "charge o-1", "ship 6", "mail o-1"]
    assert told(view) == [
        "started", "begun reserve", "done reserve", "begun charge", "done charge", "begun ship", "done ship",
        "begun mail", "done mail", "completed",
    ]  # fmt: skip
    assert await is_quiet(app)


async def test_a_start_is_part_of_the_callers_transaction(app: Postlude, database_url: str) -> None:
    app.sagas.register(PLACE)
    with pytest.raises(RuntimeError):
        async with app.transaction() as tx:
            saga_id = await app.sagas.start(tx, PLACE, Order("o-1"))
            raise RuntimeError
    with pytest.raises(SagaNotFound):
        await app.sagas.get(saga_id)
    assert await app.drain() == 0
    assert await written(database_url) == []


async def test_a_process_runs_again_after_its_end_and_never_twice_at_a_time(app: Postlude) -> None:
    app.sagas.register(PLACE)
    first = await start(app, PLACE, Order("o-1"), id="o-1")
    with pytest.raises(SagaRefused, match="saga place runs for 'o-1' already"):
        await start(app, PLACE, Order("o-1"), id="o-1")
    await app.drain()
    second = await finish(app, PLACE, Order("o-1"), id="o-1")
    assert (second.process_id, second.generation, second.status) == ("o-1", 2, "completed")
    assert (await app.sagas.get(first)).generation == 1


async def test_what_cannot_be_started_is_refused(app: Postlude) -> None:
    with pytest.raises(ConfigurationError, match="there is no saga 'place'"):
        await start(app, PLACE, Order("o-1"))
    app.sagas.register(PLACE)
    with pytest.raises(ConfigurationError, match="saga place starts with Order, not dict"):
        await start(app, PLACE, {"order": "o-1"})
    with pytest.raises(ConfigurationError, match="two sagas named 'place'"):
        app.sagas.register(PLACE)


async def test_whoever_waits_is_told_of_the_end_and_not_kept_for_ever(app: Postlude) -> None:
    app.sagas.register(PLACE)
    saga_id = await start(app, PLACE, Order("o-1"))
    with pytest.raises(TimeoutError):
        await app.sagas.wait(saga_id, timeout=0.05)
    waiting = asyncio.create_task(app.sagas.wait(saga_id, timeout=20))
    await app.drain()
    assert (await waiting).status == "completed"


async def test_a_worker_runs_many_at_a_time(app: Postlude, database_url: str) -> None:
    app.sagas.register(PLACE)
    ids = [await start(app, PLACE, Order(f"o-{n}", 200 * (n % 2))) for n in range(20)]
    async with app.worker():
        views = [await app.sagas.wait(one, timeout=30) for one in ids]
    assert [view.status for view in views] == ["completed", "compensated"] * 10
    assert len(await written(database_url)) == 10 * 4 + 10 * 2


async def test_a_step_is_tried_again_and_its_half_done_work_rolled_back(app: Postlude, database_url: str) -> None:
    attempts: list[int] = []

    async def third(state: Order, ctx: Context) -> Ok[None]:
        attempts.append(ctx.attempt)
        await write(ctx.tx, "third")
        if ctx.attempt < 3:
            raise RuntimeError("not yet")
        return Ok(None)

    saga = Saga("patient", state=Order).step(third, undo=None)
    app.sagas.register(saga)
    assert (await finish(app, saga, Order("o-1"))).status == "completed"
    assert attempts == [1, 2, 3]
    assert await written(database_url) == ["third"]


# ---------------------------------------------------------------- back


async def test_an_err_rolls_its_step_back_and_the_others_are_undone(app: Postlude, database_url: str) -> None:
    app.sagas.register(PLACE)
    view = await finish(app, PLACE, Order("o-1", 500))
    assert (view.status, view.error) == ("compensated", "charge:TooMuch")
    assert await written(database_url) == ["reserve o-1", "release shelf 7"]
    assert await is_quiet(app)


async def test_undos_run_in_reverse_order_each_with_what_it_undoes(app: Postlude, database_url: str) -> None:
    def numbered(n: int) -> Any:
        async def act(state: Order, ctx: Context) -> Ok[int]:
            await write(ctx.tx, f"do {n}")
            return Ok(n)

        return act

    async def undo(state: Order, ctx: Context) -> None:
        await write(ctx.tx, f"undo {ctx.result} {ctx.idempotency_key.removeprefix(str(ctx.saga_id))}")

    saga = Saga("long", state=Order)
    for n in range(3):
        saga = saga.step(numbered(n), undo=undo, name=f"s{n}")
    saga = saga.step(failing(RuntimeError("no")), undo=None)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    assert (view.status, view.error) == ("compensated", "fail:RuntimeError")
    assert await written(database_url) == [
        "do 0", "do 1", "do 2", "undo 2 :s2:undo", "undo 1 :s1:undo", "undo 0 :s0:undo",
    ]  # fmt: skip


async def test_a_step_that_used_its_attempts_or_was_rejected_turns_the_saga_back(app: Postlude) -> None:
    calls: list[str] = []
    own = Saga("own", state=Order).step(reserve, undo=release)
    own = own.step(failing(RuntimeError("no"), calls), undo=None, retry=Retry(max_attempts=2, base_delay=0))
    rejected = Saga("rejected", state=Order).step(failing(Reject("never"), calls), undo=None)
    app.sagas.register(own)
    app.sagas.register(rejected)
    assert (await finish(app, own, Order("o-1"))).error == "fail:RuntimeError"
    assert len(calls) == 2, "the step says how often"
    view = await finish(app, rejected, Order("o-1"))
    assert (view.status, view.error) == ("compensated", "fail:Reject")
    assert len(calls) == 3
    assert await is_quiet(app)


async def test_a_step_that_breaks_its_word_turns_the_saga_back(app: Postlude, database_url: str) -> None:
    async def forgetful(state: Order, ctx: Context) -> Any:
        await write(ctx.tx, "forgotten")

    saga = Saga("forgetful", state=Order).step(reserve, undo=release).step(forgetful, undo=None)
    app.sagas.register(saga)
    assert (await finish(app, saga, Order("o-1"))).error == "forgetful:ContractViolation"
    assert await written(database_url) == ["reserve o-1", "release shelf 7"]


async def test_a_step_that_commits_by_itself_may_have_happened(app: Postlude, database_url: str) -> None:
    async def greedy(state: Order, ctx: Context) -> Ok[None]:
        await write(ctx.tx, "greedy")
        done = ctx.tx.execute("COMMIT")
        if hasattr(done, "__await__"):
            await done
        return Ok(None)

    saga = Saga("greedy", state=Order).step(greedy, undo=release)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    assert (view.status, view.error) == ("compensated", "greedy:ContractViolation")
    assert await written(database_url) == ["greedy", "release None"]


# ---------------------------------------------------------------- calling out


async def test_a_call_has_one_key_for_all_its_attempts_and_is_undone_when_nobody_knows(
    app: Postlude, database_url: str
) -> None:
    keys: list[str] = []
    undone: list[Any] = []

    async def undo_call(state: Order, ctx: Context) -> None:
        undone.append((ctx.idempotency_key, ctx.result, ctx.tx))

    call = failing(RuntimeError("timeout"), keys)
    saga = Saga("calling", state=Order).step(call, undo=undo_call, name="call", transactional=False)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    assert (view.status, view.error) == ("compensated", "call:RuntimeError")
    assert keys == [f"{view.id}:call"] * 3
    assert undone == [(f"{view.id}:call:undo", None, None)]
    assert "unknown call" in told(view)


async def test_what_a_call_appends_and_returns_is_kept_when_it_is_settled(app: Postlude) -> None:
    async def call(state: Order, ctx: Context) -> Ok[Order]:
        assert ctx.tx is None
        return Ok(Order(state.order, 7))

    saga = Saga("calling", state=Order).step(call, undo=None, transactional=False)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1"))
    assert (view.status, view.state) == ("completed", {"order": "o-1", "total": 7})


# ---------------------------------------------------------------- blocks


async def test_branches_are_joined_before_the_next_step(app: Postlude, database_url: str) -> None:
    saga = Saga("split", state=Order).parallel(step(reserve, undo=release), step(charge, undo=refund)).pivot(ship)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1", 5))
    assert view.status == "completed"
    done = await written(database_url)
    assert sorted(done[:2]) == ["charge o-1", "reserve o-1"]
    assert done[2:] == ["ship 6"]


async def test_a_branch_that_fails_undoes_the_others(app: Postlude, database_url: str) -> None:
    saga = Saga("split", state=Order).parallel(step(reserve, undo=release), step(charge, undo=refund)).pivot(ship)
    app.sagas.register(saga)
    view = await finish(app, saga, Order("o-1", 500))
    assert (view.status, view.error) == ("compensated", "charge:TooMuch")
    assert await written(database_url) == ["reserve o-1", "release shelf 7"]
