"""Plain sagas, driven through the app: forward, back, and through whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from postlude import (
    ConfigurationError,
    Context,
    Err,
    Ok,
    Postlude,
    Reject,
    Retry,
    Saga,
    SagaNotFound,
    SagaRefused,
    Stuck,
    step,
)
from tests.engine import die, until, workers
from tests.saga_books import WHO, Faults, Order, books, finish, is_quiet, start, told, write, written


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with books(database_url) as app:
        yield app


async def reserve(state: Order, ctx: Context) -> Ok[str]:
    await write(ctx.tx, f"reserve {state.order}")
    return Ok("shelf 7")


async def release(state: Order, ctx: Context) -> None:
    await write(ctx.tx, f"release {ctx.result}")


async def charge(state: Order, ctx: Context) -> Ok[Order] | Err[str]:
    await write(ctx.tx, f"charge {state.order}")
    if state.total > 100:
        return Err("TooMuch")
    return Ok(Order(state.order, state.total + 1))


async def refund(state: Order, ctx: Context) -> Ok[None]:
    await write(ctx.tx, f"refund {state.total}")
    return Ok(None)


async def ship(state: Order, ctx: Context) -> Ok[None]:
    await write(ctx.tx, f"ship {state.total}")
    return Ok(None)


async def mail(state: Order, ctx: Context) -> Ok[None]:
    await write(ctx.tx, f"mail {state.order}")
    return Ok(None)


def failing(error: Exception, calls: list[str] | None = None) -> Any:
    """A step that raises, whatever it has written."""

    async def fail(state: Order, ctx: Context) -> Ok[None]:
        if calls is not None:
            calls.append(ctx.idempotency_key)
        if ctx.tx is not None:
            await write(ctx.tx, "half")
        raise error

    return fail


def switched(switch: list[bool], word: str) -> Any:
    """A step or an undo that says Err until it is switched on."""

    async def act(state: Order, ctx: Context) -> Ok[str] | Err[str]:
        if not switch:
            return Err("Off")
        await write(ctx.tx, word)
        return Ok(word)

    return act


PLACE = Saga("place", state=Order).step(reserve, undo=release).step(charge, undo=refund).pivot(ship).step(mail)


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


# ---------------------------------------------------------------- stuck, and what operators do


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


# ---------------------------------------------------------------- time


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
