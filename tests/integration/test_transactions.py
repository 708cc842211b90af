"""Where transactions come from, and what commits with them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import pytest

from postlude import ConfigurationError, Context, Event, NotInTransaction, Ok, Postlude, Settings, event
from postlude.testing.clock import ManualClock
from tests.engine import Noted, connect, held, make_app, note, published, query, routed_app


@event(type="test.done", key="key")
class Done(Event):
    key: str


def app_with(url: str, transactions: Any, **settings: Any) -> Postlude:
    """An app whose handlers get their transactions from there; retries wait for nothing."""
    settings.setdefault("retry", {"base_delay_seconds": 0, "jitter_factor": 0})
    options = Settings.load(environ={}, **settings)
    app = Postlude(url, broker="memory://", transactions=transactions, settings=options)
    app.clock = ManualClock()
    return app


async def effects(url: str) -> list[int]:
    return [row[0] for row in await query(url, "SELECT n FROM effect ORDER BY n")]


async def write_effect(tx: Any, n: int) -> None:
    """One statement that both drivers understand."""
    if isinstance(tx, sqlite3.Connection):
        tx.execute("INSERT INTO effect VALUES (?)", (n,))
    else:
        await tx.execute("INSERT INTO effect VALUES ($1)", n)


# ---------------------------------------------------------------- our own


async def test_what_is_appended_commits_with_the_callers_rows(database_url: str) -> None:
    await query(database_url, "CREATE TABLE effect (n int)")
    async with routed_app(database_url) as app:
        async with app.transaction() as tx:
            await write_effect(tx, 1)
            one = await app.outbox.append(tx, Noted(key="a", n=1))
            assert await effects(database_url) == []
            assert await query(database_url, "SELECT count(*) FROM postlude_event") == [(0,)]
        assert await effects(database_url) == [1]
        assert (await app.insight.event(one)).deliveries[0].status == "pending"
        await app.drain()
        assert published(app) == [1]


async def test_what_is_rolled_back_never_was(database_url: str) -> None:
    await query(database_url, "CREATE TABLE effect (n int)")
    async with routed_app(database_url) as app:
        with pytest.raises(ZeroDivisionError):
            async with app.transaction() as tx:
                await write_effect(tx, 1)
                await app.outbox.append(tx, Noted(key="a", n=1))
                raise ZeroDivisionError
        assert await effects(database_url) == []
        assert await app.drain() == 0
        for table in ("event", "delivery"):
            assert await query(database_url, f"SELECT count(*) FROM postlude_{table}") == [(0,)]


# ---------------------------------------------------------------- the caller's


async def test_a_callers_transaction_is_adopted_and_left_to_the_caller(database_url: str) -> None:
    async with routed_app(database_url) as app:
        async with held(database_url) as caller:
            async with app.transaction(caller.connection) as tx:
                assert tx is caller.connection
                await app.outbox.append(tx, Noted(key="a", n=1))
            assert await query(database_url, "SELECT count(*) FROM postlude_event") == [(0,)], "not ours to commit"
            await caller.commit()
        async with held(database_url) as caller:
            async with app.transaction(caller.connection) as tx:
                await app.outbox.append(tx, Noted(key="a", n=2))
            await caller.rollback()
        await app.drain()
        assert published(app) == [1]


async def test_a_block_that_raises_leaves_the_callers_transaction_open(database_url: str) -> None:
    async with routed_app(database_url) as app:
        async with held(database_url) as caller:
            with pytest.raises(ZeroDivisionError):
                async with app.transaction(caller.connection) as tx:
                    await app.outbox.append(tx, Noted(key="a", n=1))
                    raise ZeroDivisionError
            await caller.commit()
        await app.drain()
        assert published(app) == [1]


async def test_a_handle_in_autocommit_is_refused(database_url: str) -> None:
    async with routed_app(database_url) as app:
        connection = await connect(database_url)
        try:
            with pytest.raises(NotInTransaction):
                async with app.transaction(connection):
                    pytest.fail("the block must not begin")
            with pytest.raises(NotInTransaction):
                await app.outbox.append(connection, Noted(key="a", n=1))
        finally:
            if (closing := connection.close()) is not None:
                await closing


async def test_a_handle_that_nobody_knows_is_refused(database_url: str) -> None:
    async with routed_app(database_url) as app:
        with pytest.raises(ConfigurationError, match="not a handle"):
            async with app.transaction(object()):
                pytest.fail("the block must not begin")


async def test_a_handle_of_another_dialect_is_refused(sqlite_url: str, any_postgres_url: str) -> None:
    async with routed_app(sqlite_url) as app, held(any_postgres_url) as caller:
        with pytest.raises(ConfigurationError, match="postgres handle"):
            await app.outbox.append(caller.connection, Noted(key="a", n=1))


# ---------------------------------------------------------------- transactions=


def register(app: Postlude, handled: list[Any], *, fail_once: bool = False) -> None:
    """A handler that writes, and says so in an event."""
    app.route(Done)

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> Ok[Done]:
        handled.append(ctx.tx)
        await write_effect(ctx.tx, noted.n)
        if fail_once and len(handled) == 1:
            raise RuntimeError("after the write")
        return Ok(Done(key=noted.key))


async def works(app: Postlude, url: str, handled: list[Any]) -> None:
    """Two notes, of which the first attempt fails: effects once, events once, receipts once."""
    await query(url, "CREATE TABLE effect (n int)")
    async with app:
        await note(app, "a", 1, 2)
        await app.drain()
        assert len(handled) == 3
        assert await effects(url) == [1, 2]
        assert len(app.broker().messages("events.test.done")) == 2
        assert len(await app.insight.list(status="sent", destination="handler:handler")) == 2
        assert set((await app.insight.counts()).values()) == {0}


async def test_handlers_use_our_own_connection_by_default(database_url: str) -> None:
    handled: list[Any] = []
    app = make_app(database_url)
    register(app, handled, fail_once=True)
    await works(app, database_url, handled)


async def test_handlers_use_an_asyncpg_pool(postgres_url: str) -> None:
    handled: list[Any] = []
    settings = {"application_name": "shop"}
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=2, server_settings=settings) as pool:
        app = app_with(postgres_url, pool)
        register(app, handled, fail_once=True)
        names: set[str] = set()

        @app.on(Done, name="whose")
        async def whose(done: Done, ctx: Context) -> None:
            names.add(await ctx.tx.fetchval("SELECT current_setting('application_name')"))

        await works(app, postgres_url, handled)
        assert names == {"shop"}
        assert pool.get_idle_size() == pool.get_size(), "every connection was given back"


async def test_handlers_use_an_async_context_manager(postgres_url: str) -> None:
    handled: list[Any] = []
    given: list[Any] = []

    @asynccontextmanager
    async def transactions() -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(postgres_url)
        given.append(connection)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    app = app_with(postgres_url, transactions)
    register(app, handled, fail_once=True)
    await works(app, postgres_url, handled)
    assert handled == given[1:], "the first was opened at start-up, to see whether it can be"


async def test_handlers_use_a_context_manager_of_sqlite3(sqlite_url: str) -> None:
    handled: list[Any] = []
    given: list[Any] = []

    @contextmanager
    def transactions() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        given.append(connection)
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        finally:
            connection.close()

    app = app_with(sqlite_url, transactions)
    register(app, handled, fail_once=True)
    await works(app, sqlite_url, handled)
    assert handled == given[1:], "the first was opened at start-up, to see whether it can be"


@pytest.mark.parametrize("wrong", [42, "postgresql://there", object()], ids=["number", "text", "object"])
async def test_what_cannot_open_transactions_is_refused(database_url: str, wrong: Any) -> None:
    app = app_with(database_url, wrong)
    register(app, [])
    async with app:
        with pytest.raises(ConfigurationError, match="cannot open transactions"):
            await app.drain()


async def test_a_callable_that_gives_no_context_manager_is_told_at_start_up(database_url: str) -> None:
    app = app_with(database_url, lambda: 42)
    handled: list[Any] = []
    register(app, handled)
    async with app:
        await note(app, "a", 1)
        with pytest.raises(ConfigurationError, match="gave a int, which is no context manager"):
            async with app.worker():
                pytest.fail("it must not run")
        with pytest.raises(ConfigurationError, match="no context manager"):
            await app.drain()
        assert handled == []
        assert (await app.insight.counts())["pending"] == 1


async def test_a_callable_that_gives_autocommit_is_told_at_start_up(any_postgres_url: str) -> None:
    @asynccontextmanager
    async def transactions() -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(any_postgres_url)
        try:
            yield connection
        finally:
            await connection.close()

    app = app_with(any_postgres_url, transactions)
    handled: list[Any] = []
    register(app, handled)
    async with app:
        await note(app, "a", 1)
        with pytest.raises(ConfigurationError, match="given to Postlude are none: this asyncpg connection is in auto"):
            await app.drain()
        assert handled == []
        assert (await app.insight.counts())["pending"] == 1


async def test_a_handle_of_another_database_is_told_at_start_up(sqlite_url: str, any_postgres_url: str) -> None:
    async with asyncpg.create_pool(any_postgres_url, min_size=1, max_size=1) as pool:
        app = app_with(sqlite_url, pool)
        register(app, [])
        async with app:
            with pytest.raises(ConfigurationError, match="a postgres handle was given to an app on sqlite"):
                await app.drain()


async def test_a_callable_that_never_commits_is_told_and_not_delivered_for_ever(database_url: str) -> None:
    @asynccontextmanager
    async def transactions() -> AsyncIterator[Any]:
        async with held(database_url) as transaction:
            yield transaction.connection

    await query(database_url, "CREATE TABLE effect (n int)")
    app = app_with(database_url, transactions)
    handled: list[Any] = []
    register(app, handled)
    async with app:
        await note(app, "a", 1)
        await app.drain()
        assert len(handled) == 1
        (letter,) = await app.insight.list(status="dead")
        assert "ConfigurationError (configuration.refused)" in (letter.error or "")
        assert await effects(database_url) == []


async def test_a_handler_that_closes_what_it_was_lent_is_a_dead_letter(any_postgres_url: str) -> None:
    """It looks like a lost connection, which is nobody's fault; so often it is none."""
    await query(any_postgres_url, "CREATE TABLE effect (n int)")
    app = make_app(any_postgres_url)
    handled: list[int] = []

    @app.on(Noted, name="handler")
    async def closes(noted: Noted, ctx: Context) -> None:
        handled.append(noted.n)
        await write_effect(ctx.tx, noted.n)
        if noted.n == 1:
            await ctx.tx.close()

    async with app:
        await note(app, "a", 1)
        await note(app, "b", 2)
        await app.drain()
        assert sorted(handled) == [1, 1, 1, 2]
        (letter,) = await app.insight.list()
        assert (letter.status, letter.key) == ("dead", "a")
        assert "ContractViolation" in (letter.error or "")
        assert await effects(any_postgres_url) == [2]


# ---------------------------------------------------------------- one commit


async def test_a_handlers_writes_and_its_settling_commit_together(database_url: str) -> None:
    await query(database_url, "CREATE TABLE effect (n int)")
    app = make_app(database_url)
    app.route(Done)
    seen: list[tuple[Any, ...]] = []

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> Ok[Done]:
        await write_effect(ctx.tx, noted.n)
        outside = await query(
            database_url, "SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM postlude_delivery)"
        )
        seen.append(outside[0])
        return Ok(Done(key=noted.key))

    async with app:
        await note(app, "a", 1)
        await app.drain()
        assert seen == [(0, 1)], "from outside neither the effect nor the settling could be seen"
        assert await effects(database_url) == [1]
        assert await query(database_url, "SELECT count(*) FROM postlude_delivery") == [(0,)]


async def test_a_handler_that_dies_before_the_commit_has_written_nothing(database_url: str) -> None:
    await query(database_url, "CREATE TABLE effect (n int)")
    app = make_app(database_url, retry={"max_attempts": 2, "base_delay_seconds": 0, "jitter_factor": 0})
    app.route(Done)

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> None:
        await write_effect(ctx.tx, noted.n)
        await ctx.append(Done(key=noted.key))
        raise RuntimeError("before the commit")

    async with app:
        await note(app, "a", 1)
        await app.drain()
        assert await effects(database_url) == []
        assert app.broker().messages() == []
        assert await query(database_url, "SELECT count(*) FROM postlude_event") == [(1,)]
        assert await query(database_url, "SELECT count(*) FROM postlude_receipt") == [(0,)]
        (letter,) = await app.insight.list()
        assert (letter.status, letter.attempts) == ("dead", 2)


async def test_a_commit_that_fails_undoes_everything(postgres_url: str) -> None:
    """A deferred constraint speaks only at the commit, when the handler has long returned."""
    await query(postgres_url, "CREATE TABLE effect (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    await query(postgres_url, "INSERT INTO effect VALUES (1)")
    app = make_app(postgres_url, retry={"max_attempts": 2, "base_delay_seconds": 0, "jitter_factor": 0})
    handled: list[Any] = []
    register(app, handled)
    async with app:
        await note(app, "a", 1, 2)
        await app.drain()
        assert len(handled) == 3
        assert await effects(postgres_url) == [1, 2]
        assert len(app.broker().messages()) == 1
        (letter,) = await app.insight.list()
        assert (letter.status, letter.attempts) == ("dead", 2)
        assert "UniqueViolationError" in (letter.error or "")


async def test_a_serialisation_failure_burns_no_attempt(postgres_url: str) -> None:
    await query(postgres_url, "CREATE TABLE counter AS SELECT 0 AS n")
    attempts: list[int] = []
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=2) as pool:

        @asynccontextmanager
        async def repeatable_read() -> AsyncIterator[Any]:
            async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
                yield connection

        app = app_with(postgres_url, repeatable_read, retry={"max_attempts": 1})

        @app.on(Noted, name="handler")
        async def handle(noted: Noted, ctx: Context) -> None:
            attempts.append(ctx.attempt)
            await ctx.tx.fetch("SELECT n FROM counter")
            if len(attempts) <= 3:
                await query(postgres_url, "UPDATE counter SET n = n + 10")
            await ctx.tx.execute("UPDATE counter SET n = n + 1")

        async with app:
            await note(app, "a", 1)
            assert await app.drain() == 1
            assert attempts == [1, 1, 1, 1], "with a budget of one attempt it would be dead by now"
            assert await query(postgres_url, "SELECT n FROM counter") == [(31,)]
            (receipt,) = await app.insight.list(status="sent")
            assert receipt.attempts == 1
