"""A worker in bad company: destinations that are down, paused, slow or broken, a database that goes away, readers
that stay for ever."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from postlude import Context, Postlude, Retry
from postlude.brokers.memory import MemoryBroker
from postlude.core.outcome import Failed, Fault, Outcome, Unavailable
from postlude.core.uuid7 import uuid7
from postlude.errors import DatabaseUnavailable
from postlude.storage.postgres.driver_asyncpg import compiled
from postlude.storage.postgres.records import BY_IDS
from postlude.testing.clock import ManualClock
from tests.engine import Noted, arrived, held, make_app, note, published, query, routed_app, until, watch, workers
from tools.servers import PostgresServer

ONCE = {"max_attempts": 1, "base_delay_seconds": 0, "jitter_factor": 0}


class CountingClock(ManualClock):
    """Whoever turns a loop asks for the time: this counts how often."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


def two_brokers(url: str, **settings: Any) -> Postlude:
    app = routed_app(url, **settings)
    app.route(Noted, to="other")
    return app


async def is_empty(url: str) -> bool:
    return not await query(url, "SELECT 1 FROM postlude_delivery WHERE status <> 'dead'")


async def only_default_waits(url: str) -> bool:
    return not await query(url, "SELECT 1 FROM postlude_delivery WHERE destination <> 'default'")


# ---------------------------------------------------------------- outages


async def test_an_outage_burns_no_attempts_and_other_destinations_go_on(database_url: str) -> None:
    app = two_brokers(database_url, retry=ONCE)
    handled: list[int] = []

    @app.on(Noted, name="handler")
    async def handle(noted: Noted) -> None:
        handled.append(noted.n)

    letters: list[Any] = []
    app.on_dead_letter(letters.append)
    app.broker().is_down = True
    async with app, app.worker() as worker:
        for n in range(20):
            await note(app, f"key-{n % 3}", n)
        await until(lambda: len(published(app, broker="other")) == len(handled) == 20)
        await until(lambda: worker.watchers.counts["unavailable:default"] >= 2)
        await until(
            lambda: only_default_waits(database_url)
        )  # a handler's last settle commits after its effect is seen
        stored = await query(database_url, "SELECT DISTINCT destination, status, attempts FROM postlude_delivery")
        assert stored == [("default", "pending", 0)]
        assert published(app) == []
        app.broker().is_down = False
        await until(lambda: len(published(app)) == 20)
        await until(lambda: is_empty(database_url))
    for key in range(3):
        assert published(app, f"key-{key}") == list(range(key, 20, 3))
    assert letters == []
    receipts = await query(database_url, "SELECT DISTINCT destination, attempts FROM postlude_receipt ORDER BY 1")
    assert receipts == [("default", 1), ("handler:handler", 1), ("other", 1)]


async def test_a_drain_during_an_outage_keeps_its_timeout_and_blocks_nobody(database_url: str) -> None:
    app = two_brokers(database_url, retry=ONCE)
    app.broker().is_down = True
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.01)

    async with app:
        await note(app, "a", 1)
        beating = asyncio.create_task(beat())
        began = time.monotonic()
        assert await app.drain(timeout=4) == 1
        took = time.monotonic() - began
        beating.cancel()
        assert published(app, broker="other") == [1]
        assert took < 30, "the timeout is four seconds; the rest is a slow machine"
        assert beats > 10, "the loop stood still"

        async def recover() -> None:
            await until(lambda: app.broker().is_down is False)

        asyncio.get_running_loop().call_later(0.3, setattr, app.broker(), "is_down", False)
        assert await app.drain(timeout=20) == 1, "a drain takes up what recovers while it waits"
        await recover()


async def test_an_outage_costs_no_spinning(sqlite_url: str) -> None:
    app = routed_app(sqlite_url)
    app.clock = clock = CountingClock()
    app.broker().is_down = True
    async with app, app.worker() as worker:
        await note(app, "a", 1)
        await until(lambda: worker.watchers.counts["unavailable:default"] >= 3)
        clock.asked, began = 0, time.monotonic()
        await note(app, "b", 2)
        await until(lambda: worker.watchers.counts["unavailable:default"] >= 5)
        # The new note and what was due already cost something by themselves, however soon the outage is seen again.
        assert clock.asked < 500 + 2000 * (time.monotonic() - began)


async def test_idle_workers_cost_no_spinning(sqlite_url: str) -> None:
    """The second one has no lane of the destination `route`, which has one in all."""
    app = routed_app(sqlite_url)
    app.clock = clock = CountingClock()
    async with app, app.worker() as first, app.worker() as second:
        await until(lambda: len(first.relays["default"].lanes) == len(second.relays["default"].lanes) == 32)
        clock.asked, began = 0, time.monotonic()
        await asyncio.sleep(1)  # nothing must happen meanwhile, so there is nothing to wait for
        assert clock.asked / (time.monotonic() - began) < 1000


async def test_a_message_that_fails_is_not_an_outage(database_url: str) -> None:
    app = routed_app(database_url, retry=ONCE)
    app.broker().fate = lambda message: Failed(Fault("Bad")) if b'"n":1' in message.payload else None
    async with app:
        await note(app, "a", 1)
        await note(app, "b", 2)
        await app.drain()
        assert published(app) == [2]
        assert (await app.insight.counts())["dead"] == 1


@pytest.mark.parametrize("headers", ['{"n": 1}', "[]", "null"])
async def test_a_raw_row_with_odd_headers_stops_no_other(database_url: str, headers: str) -> None:
    """Whoever writes with plain SQL may write anything the columns take."""
    app = routed_app(database_url)
    new_id = "randomblob(16)" if database_url.startswith("sqlite") else "gen_random_uuid()"
    async with app:
        for n, given in ((1, headers), (2, '{"fine": "yes"}')):
            payload = f'{{"key": "a", "n": {n}}}'
            await query(
                database_url,
                "INSERT INTO postlude_event (event_id, type, topic, payload, headers)"
                f" VALUES ({new_id}, 'test.noted', 'noted', '{payload}', '{given}')",
            )
        await query(
            database_url,
            "INSERT INTO postlude_delivery (event_id, destination) SELECT event_id, 'route' FROM postlude_event",
        )
        await app.drain(timeout=20)
        assert sorted(published(app)) == [1, 2]


class Breaking(MemoryBroker):
    """An adapter with a bug: one message makes it raise what no contract allows."""

    async def publish(self, messages: Sequence[Any]) -> list[Outcome]:
        if any(b'"n":1' in message.payload for message in messages):
            raise RuntimeError("a bug")
        return await super().publish(messages)


async def test_an_adapter_that_breaks_stops_no_other_destination_and_its_cause_becomes_a_dead_letter(
    database_url: str, caplog: Any
) -> None:
    """Together with others it is an outage, which burns no attempt; asked for alone it is the cause."""
    app = two_brokers(database_url, retry=ONCE)
    app._opened_brokers["default"] = Breaking()
    async with app:
        for n in range(3):
            await note(app, f"key-{n}", n)
        async with app.worker() as worker:
            await until(lambda: sorted(published(app, broker="other")) == [0, 1, 2])
            await until(lambda: sorted(published(app)) == [0, 2])
            await until(lambda: is_empty(database_url))
            assert worker.watchers.counts["unavailable:default"] >= 1
        letters = "SELECT destination, status, attempts FROM postlude_delivery"
        assert await query(database_url, letters) == [("default", "dead", 1)]
    assert "default raised outside its contract" in caplog.text
    receipts = "SELECT DISTINCT attempts FROM postlude_receipt WHERE destination = 'default'"
    assert await query(database_url, receipts) == [(1,)]


class Throttled(MemoryBroker):
    """Takes what it can and says that it cannot take the rest."""

    def __init__(self, refused: set[int]) -> None:
        super().__init__()
        self.refused = refused

    async def publish(self, messages: Sequence[Any]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for message in messages:
            n = int(message.payload.split(b":")[-1].rstrip(b"}"))
            if n in self.refused:
                self.refused.discard(n)
                outcomes.append(Unavailable(Fault("Throttled")))
            else:
                outcomes += await super().publish([message])
        return outcomes


async def test_a_head_that_was_throttled_is_not_overtaken_while_its_batch_is_being_settled(
    any_postgres_url: str,
) -> None:
    """The batch had a head that could not be published and others that could; their settle waits for a lock."""
    app = routed_app(any_postgres_url)
    app._opened_brokers["default"] = Throttled({1})
    async with app, held(any_postgres_url) as operator:
        await note(app, "a", 1)
        await note(app, "b", 0)
        await operator.connection.execute("SELECT 1 FROM postlude_delivery WHERE key = 'b' FOR UPDATE")
        async with app.worker():
            await until(lambda: published(app) == [0])
            await note(app, "a", 2)
            await asyncio.sleep(1)  # the breaker closes again long before
            early = published(app, "a")
            await operator.rollback()
            await until(lambda: len(published(app, "a")) >= 2)
    assert early in ([], [1], [1, 2])
    assert published(app, "a") == [1, 2]


# ---------------------------------------------------------------- pausing


async def test_a_pause_holds_for_every_worker_and_for_one_destination(database_url: str) -> None:
    app, second = two_brokers(database_url), two_brokers(database_url)
    async with app, second, workers(app) as (worker,):
        assert await app.actions.pause("default", actor="ann", reason="maintenance")
        await worker.tick()
        await note(app, "a", 1, 2)
        await worker.drain_once()
        assert await asyncio.wait_for(second.drain(timeout=0.5), 20) == 0
        assert await asyncio.wait_for(second.run_once(), 20) == 0
        assert (published(app), published(app, broker="other")) == ([], [1, 2])

        assert await second.actions.resume("default", actor="ann", reason="done")
        await worker.tick()
        await worker.drain_once()
        assert published(app) == [1, 2]
        audited = [(audit["action"], audit["actor"]) for audit in await app.insight.audits(target="default")]
        assert sorted(audited) == [("pause", "ann"), ("resume", "ann")]


async def test_a_pause_reaches_a_worker_that_runs(sqlite_url: str) -> None:
    app = two_brokers(sqlite_url, lane={"lease": 1})
    async with app, app.worker() as worker:
        await app.actions.pause("default", actor="ann", reason="maintenance")
        await until(lambda: worker.relays["default"].paused)
        await note(app, "a", 1)
        await until(lambda: published(app, broker="other") == [1])
        assert published(app) == []
        await app.actions.resume("default", actor="ann", reason="done")
        await until(lambda: published(app) == [1])


# ---------------------------------------------------------------- slow handlers


async def test_handlers_that_hang_do_not_hold_up_other_destinations(any_postgres_url: str) -> None:
    """As many as run at a time, each with a connection of its own; brokers and appends still get theirs."""
    app = routed_app(any_postgres_url)
    inside, go_on = 0, asyncio.Event()

    @app.on(Noted, name="slow")
    async def slow(noted: Noted) -> None:
        nonlocal inside
        inside += 1
        await go_on.wait()

    async with app, app.worker():
        for n in range(20):
            await note(app, f"key-{n}", n)
        await until(lambda: inside >= 5)
        await until(lambda: len(published(app)) == 20)
        await asyncio.wait_for(note(app, "late", 20), 20)
        await until(lambda: len(published(app)) == 21)
        go_on.set()
        await until(lambda: is_empty(any_postgres_url))
    assert inside == 21


async def test_an_async_sqlite_handler_that_awaits_does_not_block_appends_for_good(sqlite_url: str) -> None:
    """The handler holds the only writer while it waits; the loop must turn, or it could never end."""
    app = make_app(sqlite_url)
    handled: list[int] = []

    @app.on(Noted, name="awaiting")
    async def handle(noted: Noted, ctx: Context) -> None:
        ctx.tx.execute("CREATE TABLE IF NOT EXISTS effect (n integer)")
        await asyncio.sleep(0.05)
        ctx.tx.execute("INSERT INTO effect VALUES (?)", (noted.n,))
        handled.append(noted.n)

    async with app, app.worker():
        for n in range(15):
            await asyncio.wait_for(note(app, f"key-{n}", n), 20)
        await until(lambda: len(handled) == 15)
    assert await query(sqlite_url, "SELECT count(*), count(DISTINCT n) FROM effect") == [(15, 15)]


async def test_an_async_sqlite_handler_that_awaits_for_too_long_is_told_what_to_do(sqlite_url: str) -> None:
    app = make_app(sqlite_url, retry=ONCE, handler={"sqlite_limit": 0.1})

    @app.on(Noted, name="awaiting")
    async def handle(noted: Noted, ctx: Context) -> None:
        ctx.tx.execute("CREATE TABLE effect (n integer)")
        await asyncio.sleep(30)

    async with app:
        await note(app, "a", 1)
        await app.drain(timeout=20)
        (letter,) = await app.insight.list(status="dead")
        assert letter.error is not None
        assert "only writer" in letter.error
        assert await query(sqlite_url, "SELECT count(*) FROM sqlite_master WHERE name = 'effect'") == [(0,)]


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
        await until(lambda: is_empty(any_postgres_url))
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
        await until(lambda: is_empty(private_postgres.dsn))
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
        await until(lambda: is_empty(private_postgres.dsn))
        assert (await app.insight.counts())["dead"] == 0
    assert await query(private_postgres.dsn, "SELECT n FROM effect") == [(1,)]
    assert set(attempts) == {1}


# ---------------------------------------------------------------- retention beside long readers

A_DAY = 24 * 3600.0
LONG_AGO = timedelta(days=30)


async def _with_old_partitions(url: str) -> Postlude:
    """An app with partitions of a month ago, and an event in one of them that was delivered then."""
    app = routed_app(url)
    await app.start()
    app.clock.ahead = -40 * A_DAY
    made = await app.store.upkeep.make_partitions(14)
    app.clock.ahead = 0.0
    assert any(f"{datetime.now(UTC) - LONG_AGO:%Y%m%d}" in name for name in made)
    return app


async def _append_long_ago(app: Postlude, n: int) -> Any:
    then = datetime.now(UTC) - LONG_AGO
    async with app.transaction() as tx:
        return await app.outbox.append(tx, Noted(key="old", n=n), id=uuid7(int(then.timestamp() * 1000), n))


async def test_a_requeue_that_is_not_committed_keeps_its_event_from_retiring(postgres_url: str) -> None:
    """Retention decides under the partition's lock, and a requeue or replay locks the event first."""
    app = await _with_old_partitions(postgres_url)
    async with app:
        kept, gone = await _append_long_ago(app, 1), await _append_long_ago(app, 2)
        assert await app.drain() == 2
        async with held(postgres_url) as operator:
            sql, names = compiled(app.store.database.statements["replay"])  # type: ignore[attr-defined]
            values = {"event_ids": [kept], "destinations": ["default"], "lanes": [0], "keys": ["old"]}
            given = values | {"actor": "ann", "reason": "once more", **BY_IDS}
            await operator.connection.fetch(sql, *(given[name] for name in names))
            assert not [name for name in await app.store.upkeep.retire_partitions(24) if "event" in name]
            await operator.commit()
        assert [name for name in await app.store.upkeep.retire_partitions(24) if "event" in name]
        assert await query(postgres_url, "SELECT event_id FROM postlude_event") == [(kept,)]
        assert await app.drain() == 1
        assert published(app) == [1, 2, 1]
        assert await app.actions.requeue([gone], actor="ann", reason="too late") == []
        assert await app.actions.replay([gone], to="default", actor="ann", reason="too late") == []
        assert (await app.insight.counts())["dead"] == 0


async def test_a_dead_letter_survives_the_retiring_of_its_day(postgres_url: str) -> None:
    app = await _with_old_partitions(postgres_url)
    app.broker().fate = lambda message: Failed(Fault("Bad")) if b'"n":1' in message.payload else None
    async with app:
        for n in range(1, 4):
            await _append_long_ago(app, n)
        for _ in range(10):
            await app.drain()
        assert (await app.insight.counts())["dead"] == 1
        assert await app.store.upkeep.retire_partitions(24)
        (letter,) = await app.insight.list(status="dead")
        app.broker().fate = None
        assert await app.actions.requeue([letter.event_id], actor="ann", reason="fixed")
        await app.drain()
        assert published(app) == [2, 3, 1]


@pytest.mark.parametrize("work", ["retire", "attach"])
async def test_a_long_reader_delays_retire_and_attach_but_no_append(postgres_url: str, work: str) -> None:
    app = await _with_old_partitions(postgres_url)
    upkeep = app.store.upkeep

    async def maintain() -> list[str]:
        return await (upkeep.retire_partitions(24) if work == "retire" else upkeep.make_partitions(21))

    async with app:
        await _append_long_ago(app, 0)
        await app.drain()
        async with held(postgres_url, "BEGIN ISOLATION LEVEL REPEATABLE READ") as reader:
            await reader.connection.fetch("SELECT count(*) FROM postlude_event")
            await reader.connection.fetch("SELECT count(*) FROM postlude_receipt")
            maintaining = asyncio.create_task(maintain())
            longest = 0.0
            n = 0
            while not maintaining.done():
                n += 1
                began = time.monotonic()
                await asyncio.wait_for(note(app, "new", n), 20)
                longest = max(longest, time.monotonic() - began)
            assert await maintaining == []
            assert n >= 1
            assert longest < 10, "an append waited for the reader; whatever is shorter is a slow machine"
        done = await maintain()
        assert done
        assert await app.drain() == n


async def test_a_partition_made_ahead_takes_along_what_came_early(any_postgres_url: str) -> None:
    """Ids that are no v7 may fall into any day; they are never missing, not for a moment."""
    app = routed_app(any_postgres_url)
    async with app:
        day = datetime.now(UTC) + timedelta(days=18)
        early = uuid7(int(day.timestamp() * 1000), 7)
        fits = str(early)[:14] + "4" + str(early)[15:]  # the same time, but version 4
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="early", n=1), id=fits)
        assert await query(any_postgres_url, "SELECT tableoid::regclass::text FROM postlude_event") == [
            ("postlude_event_default",)
        ]
        made = await app.store.upkeep.make_partitions(21)
        assert f"postlude_event_{day:%Y%m%d}" in made
        assert await query(any_postgres_url, "SELECT tableoid::regclass::text FROM postlude_event") == [
            (f"postlude_event_{day:%Y%m%d}",)
        ]
        assert await app.drain() == 1


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
        await until(lambda: is_empty(any_postgres_url))
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
