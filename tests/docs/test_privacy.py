"""What SECURITY.md says of errors: where the message of an exception goes, and where it does not."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from postlude import Context, Event, Postlude, Reject, Retry, Settings, event

WHOM = "ada@example.org"


@event(key="order_id")
class Ordered(Event):
    order_id: str


async def _fail_in_every_way(app: Postlude) -> str:
    """Everything that Postlude stored, told and handed out about failures whose messages name a person."""
    told: list[Any] = []
    app.on_dead_letter(told.append)
    once = Retry(max_attempts=1)

    @app.on(Ordered, name="raises", retry=once)
    async def raises(_: Ordered) -> None:
        raise ValueError(f"no such address: {WHOM}")

    @app.on(Ordered, name="rejects")
    async def rejects(_: Ordered) -> None:
        raise Reject(f"{WHOM} is blocked")

    @app.on(Ordered, name="calls_out", transactional=False, retry=once)
    def calls_out(_: Ordered) -> None:
        raise ConnectionError(f"POST /users/{WHOM} failed")

    @app.on(Ordered, name="breaks_a_rule", retry=once)
    async def breaks_a_rule(_: Ordered, ctx: Context) -> None:
        query = f"SELECT '{WHOM}'::integer" if app.store.dialect == "postgres" else f"SELECT * FROM [{WHOM}]"
        await ctx.tx.execute(query) if app.store.dialect == "postgres" else ctx.tx.execute(query)

    async with app:
        async with app.transaction() as tx:
            event_id = await app.outbox.append(tx, Ordered(order_id="o-1"))
        await app.drain()
        deliveries = (await app.insight.event(event_id)).deliveries
        assert {one.status for one in deliveries} == {"dead"}
        assert len(deliveries) == 4
        await app.actions.requeue([event_id], actor="mira", reason="try again")
        stored = [deliveries, await app.insight.audits()]
    assert len(told) == 4
    return msgspec.json.encode([stored, told]).decode()


async def test_on_postgresql_no_message_of_an_error_is_kept(
    any_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "postlude")
    kept = await _fail_in_every_way(Postlude(any_postgres_url))
    assert WHOM not in kept + caplog.text
    assert "ValueError at " in kept


async def test_on_sqlite_messages_are_kept_unless_told_otherwise(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert WHOM in await _fail_in_every_way(Postlude(sqlite_url))


async def test_location_keeps_no_message_on_sqlite_either(sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "postlude")
    settings = Settings.load(environ={}, errors={"keep": "location"})
    assert WHOM not in await _fail_in_every_way(Postlude(sqlite_url, settings=settings)) + caplog.text


async def test_a_message_is_kept_on_postgresql_when_asked_for(any_postgres_url: str) -> None:
    settings = Settings.load(environ={}, errors={"keep": "message"})
    assert WHOM in await _fail_in_every_way(Postlude(any_postgres_url, settings=settings))
