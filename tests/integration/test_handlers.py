"""Handlers: the effect, the events and the settling are one transaction, whatever happens in between."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postlude import (
    ConfigurationError,
    Context,
    DeadLetter,
    Err,
    Event,
    EventHandler,
    Ok,
    Park,
    Postlude,
    Reject,
    Retry,
    Status,
    event,
)
from tests.engine import Noted, connect, make_app, note, query, until


@event(type="test.done", record_only=True)
class Done(Event):
    n: int


@event(type="test.refused", record_only=True)
class Refused(Event):
    n: int


@pytest.fixture
async def app(database_url: str):
    app = make_app(database_url, retry={"base_delay_seconds": 0, "jitter_factor": 0, "max_attempts": 3})
    connection = await connect(database_url)
    for answer in (connection.execute("CREATE TABLE effect (n integer)"), connection.close()):
        if inspect.isawaitable(answer):
            await answer
    yield app
    await app.close()


async def write(tx: Any, n: int) -> None:
    """What a handler does to its database."""
    done = tx.execute(f"INSERT INTO effect VALUES ({n})")
    if inspect.isawaitable(done):
        await done


async def effects(url: str) -> list[int]:
    return [row[0] for row in await query(url, "SELECT n FROM effect ORDER BY n")]


async def types(url: str) -> list[str]:
    return [row[0] for row in await query(url, "SELECT type FROM postlude_event ORDER BY type")]


async def only(app: Postlude, status: str) -> Any:
    (found,) = (await app.insight.list(status=status)).items
    return found


async def test_several_handlers_of_one_event_are_independent(app: Postlude, database_url: str) -> None:
    @app.on(Noted)
    async def good(noted: Noted, ctx: Context) -> None:
        await write(ctx.tx, noted.n)

    @app.on(Noted)
    async def bad(noted: Noted) -> None:
        raise RuntimeError("bad")

    await note(app, "k", 1)
    assert await app.drain() == 1
    assert await effects(database_url) == [1]
    assert (await only(app, "dead")).destination == "handler:bad"


async def test_a_failure_rolls_the_effect_back_and_is_tried_again(app: Postlude, database_url: str) -> None:
    attempts: list[int] = []

    @app.on(Noted)
    async def third_time_lucky(noted: Noted, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        await write(ctx.tx, noted.n)
        if ctx.attempt < 3:
            raise RuntimeError("not yet")

    await note(app, "k", 7)
    assert await app.drain() == 1
    assert attempts == [1, 2, 3]
    assert await effects(database_url) == [7]
    (receipt,) = (await app.insight.list(status="sent")).items
    assert receipt.attempts == 3


async def test_when_all_attempts_are_used_it_is_a_dead_letter_and_the_hook_is_told_once(app: Postlude) -> None:
    told: list[DeadLetter] = []
    app.on_dead_letter(told.append)

    @app.on(Noted)
    async def never(noted: Noted) -> None:
        raise RuntimeError("never")

    await note(app, "k", 1)
    await app.drain()
    dead = await only(app, "dead")
    assert dead.attempts == 3
    assert dead.error.startswith("RuntimeError at tests.integration.test_handlers:never:")
    assert [letter.event_id for letter in told] == [dead.event_id]


async def test_messages_of_errors_are_kept_only_where_asked(app: Postlude) -> None:
    @app.on(Noted)
    async def tells(noted: Noted) -> None:
        raise Reject("a name that should stay here")

    await note(app, "k", 1)
    await app.drain()
    kept = "a name that should stay here" in (await only(app, "dead")).error
    assert kept == (app.store.dialect == "sqlite")


async def test_ok_appends_its_event_with_the_cause(app: Postlude, database_url: str) -> None:
    @app.on(Noted)
    async def does(noted: Noted, ctx: Context) -> Ok[Done] | Err[Refused]:
        await write(ctx.tx, noted.n)
        return Ok(Done(n=noted.n))

    await note(app, "k", 1)
    await app.drain()
    assert await types(database_url) == ["test.done", "test.noted"]
    (sent,) = (await app.insight.list(status="sent")).items
    story = await app.insight.event(sent.event_id)
    follow_up = await app.insight.event(story.caused[0])
    assert follow_up.causes == [sent.event_id]
    assert follow_up.event.correlation_id == story.event.correlation_id
    assert follow_up.event.headers["traceparent"][3:35] == story.event.headers["traceparent"][3:35]


async def test_err_undoes_the_writes_appends_the_failure_and_settles(app: Postlude, database_url: str) -> None:
    @app.on(Noted)
    async def refuses(noted: Noted, ctx: Context) -> Ok[Done] | Err[Refused]:
        await write(ctx.tx, noted.n)
        await ctx.append(Done(n=99))
        return Err(Refused(n=noted.n))

    await note(app, "k", 1)
    assert await app.drain() == 1
    assert await effects(database_url) == []
    assert await types(database_url) == ["test.noted", "test.refused"]
    assert sum((await app.insight.counts()).values()) == 0


async def test_reject_is_a_dead_letter_at_once(app: Postlude) -> None:
    @app.on(Noted)
    async def rejects(noted: Noted) -> None:
        raise Reject("no")

    await note(app, "k", 1)
    await app.drain()
    assert (await only(app, "dead")).attempts == 1


async def test_park_waits_for_its_time_and_lets_its_key_go_on(app: Postlude, database_url: str) -> None:
    @app.on(Noted)
    async def parks(noted: Noted, ctx: Context) -> None:
        if noted.n == 1 and not app.clock.ahead:
            raise Park(until=datetime.now(UTC) + timedelta(hours=1))
        await write(ctx.tx, noted.n)

    await note(app, "k", 1, 2)
    assert await app.drain() == 1
    assert await effects(database_url) == [2]
    assert (await only(app, "scheduled")).attempts == 0
    app.clock.advance(3700)
    assert await app.drain() == 1
    assert await effects(database_url) == [1, 2]


@pytest.mark.parametrize("returned", [5, "text", Ok(5), Ok(Refused(n=1)), None], ids=repr)
async def test_a_wrong_result_is_a_dead_letter_at_once(app: Postlude, database_url: str, returned: Any) -> None:
    @app.on(Noted)
    async def lies(noted: Noted, ctx: Context) -> Ok[Done] | Err[Refused]:
        await write(ctx.tx, noted.n)
        return returned  # type: ignore[no-any-return]  # that is the lie

    await note(app, "k", 1)
    assert await app.drain() == 0
    dead = await only(app, "dead")
    assert dead.error.startswith("ContractViolation (handler.contract_violation)")
    assert dead.attempts == 1
    assert await effects(database_url) == []


async def test_a_handler_that_commits_what_it_was_lent_is_a_dead_letter(app: Postlude, database_url: str) -> None:
    @app.on(Noted)
    async def commits(noted: Noted, ctx: Context) -> None:
        await write(ctx.tx, noted.n)
        done = ctx.tx.execute("COMMIT")
        if inspect.isawaitable(done):
            await done

    await note(app, "k", 1)
    await app.drain()
    dead = await only(app, "dead")
    assert dead.error.startswith("ContractViolation (handler.contract_violation)")
    assert await effects(database_url) == [1]


async def test_an_append_of_the_context_goes_with_the_transaction(app: Postlude, database_url: str) -> None:
    @app.on(Noted)
    async def appends(noted: Noted, ctx: Context) -> None:
        await ctx.append(Done(n=noted.n))
        if ctx.attempt == 1:
            raise RuntimeError("after the append")

    await note(app, "k", 1)
    await app.drain()
    assert await types(database_url) == ["test.done", "test.noted"]


async def test_a_plain_function_runs_in_a_thread(app: Postlude, database_url: str) -> None:
    threads: list[str] = []

    @app.on(Noted)
    def sync(noted: Noted, ctx: Any) -> Ok[Done]:
        threads.append(threading.current_thread().name)
        ctx.append(Refused(n=noted.n))
        return Ok(Done(n=noted.n))

    await note(app, "k", 1)
    assert await app.drain() == 1
    assert threads[0].startswith("postlude-handler")
    assert await types(database_url) == ["test.done", "test.noted", "test.refused"]


async def test_an_instance_with_services_of_its_own(app: Postlude, database_url: str) -> None:
    class Writer(EventHandler[Noted, Done, Refused]):
        def __init__(self, factor: int) -> None:
            self.factor = factor

        async def handle(self, noted: Noted, ctx: Context) -> Ok[Done] | Err[Refused]:
            await write(ctx.tx, noted.n * self.factor)
            return Ok(Done(n=noted.n))

    app.register(Writer(10))
    await note(app, "k", 4)
    assert await app.drain() == 1
    assert await effects(database_url) == [40]
    assert "Writer" in app.routes.handlers


async def test_an_instance_that_contradicts_itself_is_refused(app: Postlude) -> None:
    class Confused(EventHandler[Noted, Done, Refused]):
        async def handle(self, done: Done) -> Ok[Done] | Err[Refused]:
            return Ok(done)

    with pytest.raises(ConfigurationError, match="handler of Noted, but handle\\(\\) takes Done"):
        app.register(Confused())


async def test_a_handler_that_calls_out_has_its_attempt_committed_first(app: Postlude, database_url: str) -> None:
    seen: list[tuple[str, int]] = []

    @app.on(Noted, transactional=False)
    async def calls(noted: Noted, ctx: Context) -> Ok[Done]:
        assert ctx.tx is None
        seen.extend(await query(database_url, "SELECT status, attempts FROM postlude_delivery"))
        await ctx.append(Refused(n=noted.n))
        return Ok(Done(n=noted.n))

    await note(app, "k", 1)
    assert await app.drain() == 1
    assert seen == [("claimed", 1)]
    assert await types(database_url) == ["test.done", "test.noted", "test.refused"]
    assert sum((await app.insight.counts()).values()) == 0


async def test_a_call_keeps_its_idempotency_key_over_attempts(app: Postlude) -> None:
    keys: list[str] = []

    @app.on(Noted, transactional=False)
    async def calls(noted: Noted, ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("the other side is busy")

    await note(app, "k", 1)
    assert await app.drain() == 1
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_a_handler_that_takes_too_long_is_stopped_and_tried_again(app: Postlude, database_url: str) -> None:
    started = 0

    @app.on(Noted, timeout=2)  # the second attempt must end within it, on any machine
    async def slow(noted: Noted, ctx: Context) -> None:
        nonlocal started
        started += 1
        await write(ctx.tx, noted.n)
        if started == 1:
            await asyncio.Event().wait()

    await note(app, "k", 1)
    assert await app.drain() == 1
    assert started == 2
    assert await effects(database_url) == [1]


async def test_an_async_sqlite_handler_that_awaits_is_warned_and_then_told_what_to_do(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(sqlite_url, handler={"sqlite_limit": 0.05}, retry={"max_attempts": 1})

    @app.on(Noted)
    async def waits(noted: Noted) -> None:
        await asyncio.Event().wait()

    await note(app, "k", 1)
    with caplog.at_level(logging.WARNING, "postlude"):
        await app.drain()
    assert "transactional=False" in caplog.text
    dead = await only(app, "dead")
    assert dead.error.startswith("HandlerTimeout (handler.timeout)")
    await app.close()


async def test_a_thread_that_hangs_loses_its_connection_and_has_no_effect(sqlite_url: str) -> None:
    app = make_app(sqlite_url, handler={"sqlite_limit": 0.05}, retry={"max_attempts": 1})
    release, wrote = threading.Event(), threading.Event()

    @app.on(Noted)
    def hangs(noted: Noted, ctx: Any) -> None:
        try:
            ctx.tx.execute("CREATE TABLE late (n integer)")
            release.wait(20)
            ctx.tx.execute("INSERT INTO late VALUES (1)")
        finally:
            wrote.set()

    await note(app, "k", 1)
    await app.drain()
    assert (await only(app, "dead")).error.startswith("HandlerTimeout")
    release.set()
    await until(wrote.is_set)
    assert await query(sqlite_url, "SELECT name FROM sqlite_master WHERE name = 'late'") == []
    await app.close()


async def test_a_statement_that_takes_too_long_is_a_failure_of_the_entry(any_postgres_url: str) -> None:
    app = make_app(any_postgres_url, retry={"base_delay_seconds": 0, "max_attempts": 2})

    @app.on(Noted)
    async def slow(noted: Noted, ctx: Context) -> None:
        await ctx.tx.execute("SET LOCAL statement_timeout = 5")
        await ctx.tx.execute("SELECT pg_sleep(5)")

    await note(app, "k", 1)
    await app.drain()
    dead = await only(app, "dead")
    assert dead.attempts == 2
    assert dead.error.startswith("QueryCanceledError at tests.integration.test_handlers:slow:")
    await app.close()


async def test_a_retry_policy_of_its_own(app: Postlude) -> None:
    @app.on(Noted, retry=Retry(max_attempts=1))
    async def once(noted: Noted) -> None:
        raise RuntimeError("once")

    await note(app, "k", 1)
    await app.drain()
    assert (await only(app, "dead")).attempts == 1


async def test_a_payload_that_does_not_fit_is_a_dead_letter(app: Postlude, database_url: str) -> None:
    @event(type="test.noted", topic="noted", record_only=True)
    class Other(Event):
        something: str

    @app.on(Noted)
    async def reads(noted: Noted) -> None:
        raise AssertionError("it cannot be read")

    async with app.transaction() as tx:
        await app.outbox.append(tx, Other(something="else"))
    await app.drain()
    assert (await only(app, "dead")).error.startswith("ValidationError")


async def test_followers_of_a_key_wait_for_a_failing_head(app: Postlude) -> None:
    done: list[int] = []

    @app.on(Noted, retry=Retry(max_attempts=5, base_delay=60, jitter=0))
    async def first_fails(noted: Noted, ctx: Context) -> None:
        if noted.n == 1 and ctx.attempt == 1:
            raise RuntimeError("first")
        done.append(noted.n)

    await note(app, "k", 1, 2, 3)
    await note(app, "other", 10)
    await app.drain()
    assert done == [10]
    app.clock.advance(61)
    await app.drain()
    assert done == [10, 1, 2, 3]


def test_statuses_answer_for_themselves() -> None:
    assert Status.pending.can_become(Status.sent)
    assert not Status.failed.can_become(Status.pending)
    assert Status.sent.next() == frozenset()
