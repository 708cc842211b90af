"""Redaction against whoever is at the same rows of PostgreSQL: operators, handlers, sagas, another redaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from postlude import Postlude
from postlude.core.outcome import Fault, Rejected
from postlude.core.saga.instance import SagaStatus
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.ports.redaction import FIRST, Wanted
from postlude.testing.contracts.arrange import Arranged
from postlude.testing.contracts.saga_arrange import saga, started
from tests.engine import held, make_app, query, until
from tests.integration.test_redaction import ADA, BY, Registered, payload_of, register


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[Postlude]:
    app = make_app(postgres_url)
    app.route(Registered)
    async with app:
        yield app


async def buried(app: Postlude) -> UUID:
    """A dead letter of the subject."""
    event_id = await register(app)
    app.broker().fate = lambda _: Rejected(Fault("Bad"))
    await app.drain()
    app.broker().fate = None
    return event_id


async def someone_waits(url: str) -> None:
    """Until a transaction of this database waits for another."""

    async def waits() -> bool:
        sql = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(await query(url, sql))

    await until(waits)


@asynccontextmanager
async def redacting(app: Postlude) -> AsyncIterator[None]:
    """A page that is done and not committed before the block ends."""
    subject = await app.erasure.pseudonym(ADA)
    wanted = Wanted(subject_id=ADA, subject=subject, discards=True, actor="ann", reason="request 17")
    async with app.store.transaction() as tx:
        page = await AsyncpgAdapter().play(tx, app.store.redaction_scripts.events(wanted, after=FIRST, limit=10))
        assert page.events == 1
        yield


@pytest.mark.parametrize(("pending", "events", "waits"), [("publish_first", 0, 1), ("discard", 1, 0)])
async def test_what_is_requeued_first_is_open_for_the_redaction(
    app: Postlude, postgres_url: str, pending: Any, events: int, waits: int
) -> None:
    event_id = await buried(app)
    async with held(postgres_url) as other:
        await other.connection.execute("SELECT FROM postlude_event FOR KEY SHARE")
        await other.connection.execute("UPDATE postlude_delivery SET status = 'failed'")
        redaction = asyncio.create_task(app.privacy.redact(ADA, pending=pending, **BY))
        await someone_waits(postgres_url)
        await other.commit()
        done = await redaction
    assert (done.events, done.waits) == (events, waits)
    assert (b"Lovelace" in await payload_of(app, event_id)) == (waits == 1)


async def test_what_is_redacted_first_is_not_requeued(app: Postlude, postgres_url: str) -> None:
    event_id = await buried(app)
    async with redacting(app):
        requeue = asyncio.create_task(app.actions.requeue([event_id], **BY))
        await someone_waits(postgres_url)
    assert await requeue == []
    assert await query(postgres_url, "SELECT outcome FROM postlude_receipt") == [("discarded",)]


async def test_what_is_redacted_first_is_not_replayed(app: Postlude, postgres_url: str) -> None:
    event_id = await register(app)
    await app.drain()
    async with redacting(app):
        replay = asyncio.create_task(app.actions.replay([event_id], to="default", **BY))
        await someone_waits(postgres_url)
    assert await replay == []
    assert await query(postgres_url, "SELECT 1 FROM postlude_delivery") == []


async def test_what_is_replayed_first_is_open_for_the_redaction(app: Postlude, postgres_url: str) -> None:
    await register(app)
    await app.drain()
    async with held(postgres_url) as other:
        await other.connection.execute("SELECT FROM postlude_event FOR KEY SHARE")
        await other.connection.execute(
            "INSERT INTO postlude_delivery (event_id, destination) SELECT event_id, 'default' FROM postlude_event"
        )
        redaction = asyncio.create_task(app.privacy.redact(ADA, pending="publish_first", **BY))
        await someone_waits(postgres_url)
        await other.commit()
        assert (await redaction).waits == 1


async def test_a_handler_that_holds_its_row_is_not_waited_for_but_told(postgres_url: str) -> None:
    app = make_app(postgres_url)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.on(Registered, name="welcome")
    async def welcome(_: Registered) -> None:
        begun.set()
        await go_on.wait()

    async with app:
        event_id = await register(app)
        async with app.worker():
            await begun.wait()
            meanwhile = await app.privacy.redact(ADA, pending="discard", **BY)
            assert (meanwhile.events, meanwhile.deliveries, meanwhile.waits) == (0, 0, 1)
            assert b"Lovelace" in await payload_of(app, event_id)
            go_on.set()
        assert (await app.privacy.redact(ADA, pending="discard", **BY)).events == 1
    assert await query(postgres_url, "SELECT outcome FROM postlude_receipt") == [("sent",)]


async def test_a_saga_that_somebody_holds_is_waited_for(app: Postlude, postgres_url: str) -> None:
    one = saga(ADA, status=SagaStatus.completed)
    await started(Arranged(app.store, AsyncpgAdapter()), one)
    async with held(postgres_url) as other:
        await other.connection.execute("SELECT FROM postlude_saga FOR UPDATE")
        assert (await app.privacy.redact(ADA, pending="discard", **BY)).waits == 1
    done = await app.privacy.redact(ADA, pending="discard", **BY)
    assert (done.sagas, done.waits) == (1, 0)


async def test_two_at_a_time_do_it_once(app: Postlude, postgres_url: str) -> None:
    for _ in range(20):
        await register(app)
    both = [app.privacy.redact(ADA, pending="discard", **BY) for _ in range(2)]
    done = await asyncio.gather(*both)
    assert sum(one.events for one in done) == 20
    assert sum(one.deliveries for one in done) == 20
    assert await query(postgres_url, "SELECT count(*) FROM postlude_receipt") == [(20,)]
