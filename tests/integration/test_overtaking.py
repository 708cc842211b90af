"""Nothing overtakes its key, and nothing waits for ever, when answers come late or not at all.

Each of these is the shortest way found to break the order of a key, or to strand it, before the core was mended.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postlude import Context, DatabaseUnavailable, Postlude
from postlude.core.outcome import Failed, Fault, Outcome
from tests.engine import Noted, make_app, note, published, query, routed_app, until
from tests.integration.test_routes import produce


async def test_what_follows_a_failure_waits_while_its_verdict_is_on_its_way(database_url: str) -> None:
    app = routed_app(database_url)
    go_on = asyncio.Event()
    tries: list[int] = []

    def fail_the_second_once(message: Any) -> Outcome | None:
        if b'"n":2' in message.payload and not tries:
            tries.append(2)
            return Failed(Fault("Refused"))
        return None

    async with app:
        app.broker().fate = fail_the_second_once
        record = app.store.settling.record

        async def slowly(*given: Any) -> set[int]:
            await go_on.wait()
            return await record(*given)

        app.store.settling.record = slowly  # type: ignore[method-assign,assignment]  # a slow network
        async with app.worker():
            await note(app, "a", 1, 2, 3)
            await until(lambda: bool(tries))
            await note(app, "a", 4)
            await note(app, "b", 5)
            await until(lambda: 5 in published(app))
            assert published(app, "a") == [1]
            go_on.set()
            await until(lambda: len(published(app, "a")) == 4)
    assert published(app, "a") == [1, 2, 3, 4]


async def test_a_delayed_entry_that_is_due_does_not_hide_the_failed_head_it_waits_for(database_url: str) -> None:
    app = make_app(database_url, retry={"base_delay_seconds": 600, "jitter_factor": 0})
    handled: list[int] = []

    @app.on(Noted, name="handler", concurrency=1)
    async def handle(noted: Noted, ctx: Context) -> None:
        if noted.n == 1 and ctx.attempt == 1:
            raise RuntimeError("not yet")
        handled.append(noted.n)

    async with app:
        soon = datetime.now(UTC) + timedelta(seconds=60)
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="a", n=1))
            for n in range(2, 70):
                await app.outbox.append(tx, Noted(key="a", n=n), available_at=soon)
        await app.drain()
        app.clock.advance(120)
        await app.drain(timeout=20)
        assert handled == [], "the key waits for its head"
        app.clock.advance(600)
        await app.drain(timeout=20)
    assert handled[0] == 1
    assert sorted(handled) == list(range(1, 70))


async def test_raw_rows_are_expanded_in_order_after_a_lost_connection(database_url: str) -> None:
    app = routed_app(database_url, relay={"batch_size": 2})
    await produce(database_url, *(Noted(key="a", n=n) for n in range(8)))
    lost: list[int] = []
    async with app:
        expand = app.store.settling.expand

        async def lose_the_first(*given: Any) -> set[int]:
            if not lost:
                lost.append(1)
                await asyncio.sleep(0.05)  # so that more is read meanwhile
                raise DatabaseUnavailable("the connection was lost")
            return await expand(*given)

        app.store.settling.expand = lose_the_first  # type: ignore[method-assign,assignment]  # a lost connection
        async with app.worker():
            await until(lambda: len(published(app)) == 8)
    assert published(app) == list(range(8))


@pytest.mark.parametrize("trouble", ["paused", "down"])
async def test_a_drain_ends_in_time_when_nothing_can_be_delivered(database_url: str, trouble: str) -> None:
    app = routed_app(database_url)
    async with app:
        await app.drain()
        if trouble == "paused":
            await app.actions.pause("default", actor="me", reason="test")
        else:
            app.broker().is_down = True
        await note(app, "a", 1, 2)
        async with asyncio.timeout(30):
            assert await app.drain(timeout=0.5) == 0
        assert await _attempts(app, database_url) == {0}, "an outage burns no attempts"
        if trouble == "paused":
            await app.actions.resume("default", actor="me", reason="test")
        app.broker().is_down = False
        await app.drain()
    assert published(app) == [1, 2]


async def _attempts(app: Postlude, url: str) -> set[int]:
    return {row[0] for row in await query(url, "SELECT attempts FROM postlude_delivery")}
