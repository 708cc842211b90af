"""Sagas that outlive the events that name a data subject: retention remembers whom they are about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

from postlude import Err, Event, EventHandler, Ok, Postlude, SagaDef, SagaStep, event
from postlude.runtime.duties.retention import Retention
from postlude.storage.postgres import partitions
from tests.engine import held, make_app, query, until

ADA, BOB = "customer-4711", "customer-8"
A_DAY = 86_400.0
BY: dict[str, Any] = {"actor": "ann", "reason": "request 17"}


@event(type="test.ordered", key="order", subjects=("customer",))
class Ordered(Event):
    order: str
    customer: str
    name: str = "Ada Lovelace"


@event(type="test.packed", key="order")
class Packed(Event):
    order: str


@event(type="test.arrived", key="order")
class Arrived(Event):
    order: str


@event(type="test.lost", key="order")
class Lost(Event):
    order: str


class Pack(EventHandler[Ordered, Packed, Lost]):
    async def handle(self, event: Ordered) -> Ok[Packed] | Err[Lost]:
        return Ok(Packed(order=event.order))


class Shipping(SagaDef[Ordered, str]):
    name: ClassVar[str] = "shipping"
    correlation_field: ClassVar[str] = "order"
    steps: ClassVar[tuple[SagaStep, ...]] = (
        SagaStep("pack", handler=Pack, success=Packed, failure=Lost, compensation=None),
        SagaStep("ship", wait=Arrived, failure=Lost, compensation=None),
    )


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with shipping(database_url) as app:
        yield app


def shipping(url: str) -> Postlude:
    app = make_app(url, retention={"events_hours": 24})
    app.register(Pack())
    app.sagas.register(Shipping())
    return app


async def append(app: Postlude, one: Event, **options: Any) -> UUID:
    async with app.transaction() as tx:
        event_id: UUID = await app.outbox.append(tx, one, **options)
    await app.drain()
    return event_id


async def retain(app: Postlude) -> None:
    """Three rounds: a day is emptied, and dropped in a later one."""
    duty = next(duty for duty in app.engine.duties() if isinstance(duty, Retention))
    for _ in range(3):
        await duty.round()


async def named(url: str) -> int:
    ((count,),) = await query(url, "SELECT count(*) FROM postlude_event WHERE subjects IS NOT NULL")
    return int(count)


async def remembered(url: str) -> list[str]:
    return [row[0] for row in await query(url, "SELECT subject FROM postlude_saga_subject ORDER BY subject")]


async def knowing(app: Postlude, url: str) -> list[str]:
    """The tables that still know something of her."""
    tables = {use.name: str(await query(url, f"SELECT * FROM {use.name}")) for use in await app.store.upkeep.disk_use()}
    return [name for name, text in tables.items() if ADA in text or "Lovelace" in text]


@pytest.mark.parametrize("has_own_id", [True, False])
async def test_an_erasure_waits_for_a_saga_that_outlived_its_events(
    app: Postlude, database_url: str, *, has_own_id: bool
) -> None:
    """An id of the producer's own lies in no day."""
    await append(app, Ordered(order="o-1", customer=ADA), **({"id": uuid4()} if has_own_id else {}))
    app.clock.advance(3 * A_DAY)
    await retain(app)
    assert await named(database_url) == 0
    assert await remembered(database_url) == [ADA]
    async with app.transaction() as tx:
        assert len((await app.erasure.erase_subject(tx, ADA)).calls) == 1
    await app.drain()
    (request,) = (await app.erasure.show(ADA)).requests
    assert request.status == "open"
    assert "postlude_saga" in await knowing(app, database_url)
    await append(app, Arrived(order="o-1"))
    app.clock.advance(400)  # the longest that our own tables wait
    await app.drain()
    (request,) = (await app.erasure.show(ADA)).requests
    assert request.status == "completed"
    assert await query(database_url, "SELECT status FROM postlude_saga") == [("completed",)]
    assert await knowing(app, database_url) == []


async def test_one_that_has_ended_is_redacted_at_once_and_others_are_left_alone(
    app: Postlude, database_url: str
) -> None:
    for order, customer in (("o-1", ADA), ("o-2", BOB)):
        await append(app, Ordered(order=order, customer=customer))
    app.clock.advance(3 * A_DAY)
    for order in ("o-1", "o-2"):
        await append(app, Arrived(order=order))
    await retain(app)
    assert (await named(database_url), await remembered(database_url)) == (0, [ADA, BOB])
    done = await app.privacy.redact(ADA, **BY)
    assert (done.events, done.sagas, done.waits) == (0, 1, 0)
    assert await remembered(database_url) == [BOB]
    assert (await app.privacy.redact(ADA, **BY)).sagas == 0
    bodies = await query(database_url, "SELECT body FROM postlude_saga")
    assert [BOB in str(body) for body in bodies].count(True) == 1
    app.clock.advance(3 * A_DAY)
    await retain(app)
    assert await query(database_url, "SELECT id FROM postlude_saga") == []
    assert await remembered(database_url) == []


async def test_a_day_that_goes_on_with_survivors_remembers_the_others(postgres_url: str) -> None:
    async with shipping(postgres_url) as app:
        trigger = await append(app, Ordered(order="o-1", customer=ADA))
        await append(app, Ordered(order="o-2", customer=BOB))
        await query(
            postgres_url, "INSERT INTO postlude_delivery (event_id, destination)"
            f" SELECT event_id, 'nobody' FROM postlude_event WHERE causation_id = '{trigger}'",
        )  # fmt: skip
        app.clock.advance(3 * A_DAY)
        await retain(app)
        assert await named(postgres_url) == 0
        assert await remembered(postgres_url) == [ADA, BOB]
        await query(postgres_url, "DELETE FROM postlude_saga_subject")
        await query(postgres_url, "DELETE FROM postlude_delivery")
        await retain(app)
        assert await remembered(postgres_url) == [], "nobody is named any more"


async def test_a_cause_that_stays_is_asked_when_what_it_caused_goes(postgres_url: str) -> None:
    async with shipping(postgres_url) as app:
        trigger = await append(app, Ordered(order="o-1", customer=ADA), id=uuid4())
        await query(
            postgres_url, f"INSERT INTO postlude_delivery (event_id, destination) VALUES ('{trigger}', 'nobody')"
        )
        app.clock.advance(3 * A_DAY)
        await retain(app)
        assert await named(postgres_url) == 1
        assert await query(postgres_url, "SELECT 1 FROM postlude_event WHERE saga_id IS NOT NULL") == []
        assert await remembered(postgres_url) == [ADA]


async def test_a_day_stays_while_the_cause_of_its_events_is_being_redacted(postgres_url: str, monkeypatch: Any) -> None:
    """Otherwise whoever was redacted would be remembered."""
    async with shipping(postgres_url) as app:
        trigger = await append(app, Ordered(order="o-1", customer=ADA), id=uuid4())
        app.clock.advance(3 * A_DAY)
        of_sagas = "SELECT 1 FROM postlude_event WHERE saga_id IS NOT NULL"
        redacts = f"UPDATE postlude_event SET subjects = NULL WHERE event_id = '{trigger}'"
        async with held(postgres_url) as redaction:
            await redaction.connection.execute(redacts)
            await app.store.upkeep.retire_partitions(24)
            assert await query(postgres_url, of_sagas) != []
        monkeypatch.setattr(partitions, "LOCK_TIMEOUT", "30s")
        async with held(postgres_url) as redaction:
            await redaction.connection.execute(redacts)
            retiring = asyncio.create_task(app.store.upkeep.retire_partitions(24))

            async def waits() -> bool:
                sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                return bool(await query(postgres_url, sql))

            await until(waits)
            await redaction.commit()
            await retiring
        assert await query(postgres_url, of_sagas) == []
        assert await remembered(postgres_url) == []
