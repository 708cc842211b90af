"""A worker in bad company: destinations that are down, paused, slow or broken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from postlude import Context, Postlude
from postlude.brokers.memory import MemoryBroker
from postlude.core.outcome import Failed, Fault, Outcome, Unavailable
from postlude.testing.clock import ManualClock
from tests.engine import ONCE, Noted, held, is_settled, make_app, note, published, query, routed_app, until, workers


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
        await until(lambda: is_settled(database_url))
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
            await until(lambda: is_settled(database_url))
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
        await until(lambda: is_settled(any_postgres_url))
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
