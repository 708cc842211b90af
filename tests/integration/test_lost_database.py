"""The database goes away, or loses an answer: nothing is lost, no attempt is burned, and the worker goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from postlude import Context, Postlude, Retry
from postlude.core.outcome import Failed, Fault
from postlude.errors import DatabaseUnavailable
from tests.engine import ONCE, Noted, arrived, held, is_settled, note, published, query, routed_app, until, watch
from tools.servers import PostgresServer

# ---------------------------------------------------------------- the database goes away


async def test_rows_are_found_although_the_answer_about_them_was_lost(database_url: str) -> None:
    """The worker had learnt of new rows, not yet in which lanes; then its connection was lost."""
    app = routed_app(database_url)
    eyes = watch(app)
    lost = 0

    async def lose(*_: Any) -> None:
        nonlocal lost
        lost += 1
        eyes.before.clear()
        raise DatabaseUnavailable("the connection was lost")

    async with app, app.worker():
        await note(app, "a", 0)
        await until(lambda: published(app) == [0])
        eyes.before["news"] = lose
        await note(app, "a", 1)
        await until(lambda: lost == 1)
        await note(app, "b", 2)
        await until(lambda: sorted(published(app)) == [0, 1, 2])


@pytest.mark.parametrize("method", ["last_seq", "appenders", "news", "read_pending", "read_due", "freed", "events"])
async def test_a_lost_read_loses_nothing(any_postgres_url: str, method: str) -> None:
    """Every third call of one kind fails; entries fail too, so that all kinds of reads are needed."""
    app = routed_app(any_postgres_url)
    eyes = watch(app)
    refused: set[bytes] = set()

    def refuse_once(message: Any) -> Failed | None:
        if message.payload in refused or hash(message.payload) % 3:
            return None
        refused.add(message.payload)
        return Failed(Fault("Refused"))

    async def lose(*_: Any) -> None:
        if eyes.calls[method] % 3 == 2:
            raise DatabaseUnavailable("the connection was lost")

    app.broker().fate = refuse_once
    eyes.before[method] = lose
    async with app, app.worker():
        for n in range(40):
            await note(app, f"key-{n % 4}", n)
        await until(lambda: len(published(app)) >= 40)
        await until(lambda: is_settled(any_postgres_url))
    for key in range(4):
        assert published(app, f"key-{key}") == list(range(key, 40, 4))


async def _private_app(server: PostgresServer, **settings: Any) -> Postlude:
    app = routed_app(server.dsn, **settings)
    await app.db.upgrade()
    return app


async def _patiently(act: Callable[[], Awaitable[Any]]) -> None:
    """As a caller with a retry of his own would."""

    async def done() -> bool:
        with contextlib.suppress(Exception):
            await act()
            return True
        return False

    await until(done)


@pytest.mark.parametrize("way", ["kill", "restart"])
async def test_a_worker_reconnects_and_continues(private_postgres: PostgresServer, way: str) -> None:
    app = await _private_app(private_postgres, lane={"lease": 2})
    async with app, app.worker():
        await note(app, "a", 1)
        await until(lambda: published(app) == [1])
        for n in (2, 3):
            if way == "kill":
                private_postgres.kill()
                await asyncio.sleep(0.2)  # let loops run into the outage
                await asyncio.to_thread(_start, private_postgres)
            else:
                await asyncio.to_thread(private_postgres.stop)
                await asyncio.sleep(0.2)
                await asyncio.to_thread(_start, private_postgres)
            await _patiently(partial(note, app, "a", n))
            await arrived(app, n)
        await until(lambda: is_settled(private_postgres.dsn))
    assert list(dict.fromkeys(published(app))) == [1, 2, 3]


def _start(server: PostgresServer) -> None:
    server.start()


@pytest.mark.parametrize("last_words", [True, False], ids=["with a statement", "without a statement"])
async def test_a_connection_lost_inside_a_handler_burns_no_attempt(
    private_postgres: PostgresServer, last_words: bool
) -> None:
    app = await _private_app(private_postgres, retry=ONCE, lane={"lease": 2})
    await query(private_postgres.dsn, "CREATE TABLE effect (n int)")
    inside, go_on = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @app.on(Noted, name="handler", retry=Retry(max_attempts=1))
    async def handle(noted: Noted, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        await ctx.tx.execute(f"INSERT INTO effect VALUES ({noted.n})")
        inside.set()
        await go_on.wait()
        if last_words:
            await ctx.tx.execute("SELECT 1")

    async with app, app.worker():
        await note(app, "a", 1)
        await inside.wait()
        private_postgres.kill()
        await asyncio.to_thread(private_postgres.start)
        go_on.set()
        await until(lambda: is_settled(private_postgres.dsn))
        assert (await app.insight.counts())["dead"] == 0
    assert await query(private_postgres.dsn, "SELECT n FROM effect") == [(1,)]
    assert set(attempts) == {1}


# ---------------------------------------------------------------- retention beside long readers


@pytest.mark.parametrize("way", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_a_worker_survives_sessions_that_an_administrator_ends(any_postgres_url: str, way: str) -> None:
    """Statements are cancelled, or sessions ended, at any moment: the lease's and the listening one too."""
    app = routed_app(any_postgres_url, lane={"lease": 2})
    ended = 0
    async with app, app.worker():
        async with held(any_postgres_url) as administrator:
            for n in range(150):
                await _patiently(partial(note, app, f"key-{n % 5}", n))
                rows = await administrator.connection.fetch(
                    f"SELECT {way}(pid) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name = 'postlude' AND pid <> pg_backend_pid()"
                )
                ended += len(rows)
                await asyncio.sleep(0.01)
        await until(lambda: set(published(app)) >= set(range(150)))
        await until(lambda: is_settled(any_postgres_url))
        assert ended > 150
        assert (await app.insight.counts())["dead"] == 0
    for key in range(5):
        assert list(dict.fromkeys(published(app, f"key-{key}"))) == list(range(key, 150, 5))


async def test_the_renewing_thread_survives_whatever_goes_wrong(sqlite_url: str) -> None:
    app = routed_app(sqlite_url, lane={"lease": 0.5})
    ownership, faults = app.store.ownership, 0

    class Faulty:
        def __getattr__(self, name: str) -> Any:
            return getattr(ownership, name)

        @contextlib.asynccontextmanager
        async def lease(self) -> AsyncIterator[Any]:
            nonlocal faults
            async with ownership.lease() as lease:
                if faults < 3:
                    faults += 1
                    raise RuntimeError("a bug, or a driver's error that nobody knew of")
                yield lease

    app.store.ownership = Faulty()
    async with app, app.worker() as worker:
        await until(lambda: faults == 3)
        await until(lambda: _is_renewed(app, worker.id))


async def _is_renewed(app: Postlude, worker: Any) -> bool:
    """False also while it begins again under another id, because its lease ended before the faults did."""
    first = {live.id: live.lease_until for live in await app.insight.workers()}
    await asyncio.sleep(0.2)
    later = {live.id: live.lease_until for live in await app.insight.workers()}
    return worker in first and worker in later and later[worker] > first[worker]


async def test_a_drain_that_was_taken_for_dead_begins_again(database_url: str) -> None:
    """A laptop that slept, a frozen container: the caller of `drain` hears nothing of it."""
    app = routed_app(database_url)
    app.broker().is_down = True
    async with app:
        await note(app, "a", 1)
        draining = asyncio.create_task(app.drain(timeout=30))
        await until(lambda: _owns_lanes(database_url))
        app.clock.advance(60)
        await app.store.ownership.bury_workers()
        app.broker().is_down = False
        assert await draining == 1
    assert set(published(app)) == {1}


async def _owns_lanes(url: str) -> bool:
    return bool(await query(url, "SELECT 1 FROM postlude_lane WHERE owner IS NOT NULL"))
