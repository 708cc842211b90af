"""Steps that another service does: commands through a broker, replies through the inbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from postlude import Context, Err, Event, EventHandler, Ok, Postlude, SagaDef, SagaStep, SagaView, Settings, event
from postlude.brokers.memory import MemoryBroker
from postlude.testing.clock import ManualClock
from tests.databases import Databases
from tests.saga_books import append, books, is_quiet, told, write, written


@event(key="order_id")
class Bought(Event):
    order_id: str
    amount: int


@event
class Charge(Event):
    order_id: str
    amount: int


@event
class Charged(Event):
    order_id: str


@event
class ChargeFailed(Event):
    order_id: str


@event
class Refund(Event):
    order_id: str
    amount: int


@event
class Refunded(Event):
    order_id: str


@event
class RefundFailed(Event):
    order_id: str


@event
class Packed(Event):
    order_id: str


@event
class NotPacked(Event):
    order_id: str


class Pack(EventHandler[Bought, Packed, NotPacked]):
    async def handle(self, bought: Bought, ctx: Context) -> Ok[Packed] | Err[NotPacked]:
        if bought.amount == 13:
            return Err(NotPacked(order_id=bought.order_id))
        await write(ctx.tx, "packed")
        return Ok(Packed(order_id=bought.order_id))


class Buy(SagaDef[Bought, str]):
    name: ClassVar[str] = "buy"
    correlation_field: ClassVar[str] = "order_id"
    steps: ClassVar[tuple[SagaStep, ...]] = (
        SagaStep(
            "charge",
            command=Charge,
            topic="payments",
            success=Charged,
            failure=ChargeFailed,
            compensation=Refund,
            compensated=Refunded,
            compensation_failed=RefundFailed,
            deadline=timedelta(minutes=5),
        ),
        SagaStep("pack", handler=Pack, success=Packed, failure=NotPacked, kind="pivot", compensation=None),
    )


class Bank:
    """A service of its own: another app, another database, the same broker."""

    def __init__(self, app: Postlude) -> None:
        self.app = app
        self.keys: list[str] = []
        self.refuses = False
        app.route(Charged)
        app.route(ChargeFailed)
        app.route(Refunded)
        app.route(RefundFailed)
        app.on(Charge, topic="payments", consumer="bank", name="charge")(self.charge)
        app.on(Refund, topic="payments", consumer="bank", name="refund")(self.refund)

    async def charge(self, charge: Charge, ctx: Context) -> Ok[Charged] | Err[ChargeFailed]:
        self.keys.append(ctx.headers["idempotency-key"])
        if charge.amount > 100:
            return Err(ChargeFailed(order_id=charge.order_id))
        await write(ctx.tx, f"charge {charge.amount}")
        return Ok(Charged(order_id=charge.order_id))

    async def refund(self, refund: Refund, ctx: Context) -> Ok[Refunded] | Err[RefundFailed]:
        self.keys.append(ctx.headers["idempotency-key"])
        if self.refuses:
            return Err(RefundFailed(order_id=refund.order_id))
        await write(ctx.tx, f"refund {refund.amount}")
        return Ok(Refunded(order_id=refund.order_id))


class Town:
    def __init__(self, shop: Postlude, bank: Bank, url: str) -> None:
        self.shop, self.bank, self.bank_url = shop, bank, url

    async def settle(self) -> None:
        """Until neither has anything to do."""
        while await self.shop.drain() + await self.bank.app.drain():
            pass

    async def view(self) -> SagaView:
        instance = await self.shop.store.sagas.newest("buy", "o-1")
        assert instance is not None
        return await self.shop.sagas.get(instance.id)


@pytest.fixture
async def town(database: Databases) -> AsyncIterator[Town]:
    broker = MemoryBroker()
    async with _service(database.fresh(), broker) as shop, _service(url := database.fresh(), broker) as bank:
        shop.sagas.register(Buy)
        shop.register(Pack())
        yield Town(shop, Bank(bank), url)


@asynccontextmanager
async def _service(url: str, broker: Any) -> AsyncIterator[Postlude]:
    async with books(url) as app:
        app._opened_brokers["default"] = broker
        yield app


async def test_a_participant_is_asked_and_replies_through_the_broker(town: Town) -> None:
    await append(town.shop, Bought(order_id="o-1", amount=7))
    await town.shop.drain()
    assert (await town.view()).waits_for == ("charge: a reply, charged or charge.failed",)
    await town.settle()
    view = await town.view()
    assert view.status == "completed"
    assert town.bank.keys == [f"{view.id}:charge"]
    assert await written(town.bank_url) == ["charge 7"]
    assert await is_quiet(town.shop)
    assert await is_quiet(town.bank.app)


async def test_a_participants_no_turns_the_saga_back(town: Town) -> None:
    await append(town.shop, Bought(order_id="o-1", amount=700))
    await town.settle()
    view = await town.view()
    assert (view.status, view.error) == ("compensated", "charge:charge.failed")
    assert await written(town.bank_url) == []


async def test_a_participant_is_asked_to_undo_and_says_when_it_has(town: Town) -> None:
    await append(town.shop, Bought(order_id="o-1", amount=13))
    await town.settle()
    view = await town.view()
    assert (view.status, view.error) == ("compensated", "pack:NotPacked")
    assert await written(town.bank_url) == ["charge 13", "refund 13"]
    assert town.bank.keys == [f"{view.id}:charge", f"{view.id}:charge:undo"]
    assert await is_quiet(town.shop)


async def test_a_participant_that_cannot_undo_leaves_the_saga_stuck_until_it_can(town: Town) -> None:
    town.bank.refuses = True
    await append(town.shop, Bought(order_id="o-1", amount=13))
    await town.settle()
    view = await town.view()
    assert (view.status, view.step) == ("stuck", "charge")
    town.bank.refuses = False
    await town.shop.sagas.retry(view.id, actor="ann", reason="the bank is open")
    await town.settle()
    assert (await town.view()).status == "compensated"
    assert await written(town.bank_url) == ["charge 13", "refund 13"]
    assert town.bank.keys[-1] == f"{view.id}:charge:undo:2", "an answered key is not used again"


async def test_a_participant_that_is_silent_is_asked_to_undo_and_a_late_reply_is_ignored(town: Town) -> None:
    await append(town.shop, Bought(order_id="o-1", amount=7))
    await town.shop.drain()
    town.shop.clock.advance(301)
    await town.shop.drain()
    view = await town.view()
    assert (view.status, view.error) == ("compensating", "charge:Deadline")
    await town.settle()
    view = await town.view()
    assert view.status == "compensated"
    assert await written(town.bank_url) == ["charge 7", "refund 7"]
    assert "undone charge" in told(view)


async def test_a_reply_that_comes_twice_counts_once(town: Town) -> None:
    await append(town.shop, Bought(order_id="o-1", amount=7))
    await town.settle()
    (reply,) = (await town.bank.app.insight.list(type="charged", status="sent")).items
    await town.bank.app.actions.replay([reply.event_id], to="default", actor="ann", reason="again")
    await town.settle()
    view = await town.view()
    assert view.status == "completed"
    assert told(view).count("done charge") == 1
    assert await is_quiet(town.shop)


async def test_a_participant_in_the_same_app_needs_no_broker(database_url: str) -> None:
    async with books(database_url):
        pass
    app = Postlude(database_url, settings=Settings.load(environ={}))
    app.clock = ManualClock()
    async with app:
        app.sagas.register(Buy)
        app.register(Pack())

        @app.on(Charge)
        async def charge(charge: Charge, ctx: Context) -> Ok[Charged]:
            await write(ctx.tx, f"charge {ctx.headers['idempotency-key'].rpartition(':')[2]}")
            return Ok(Charged(order_id=charge.order_id))

        @app.on(Refund)
        async def refund(refund: Refund) -> Ok[Refunded]:
            return Ok(Refunded(order_id=refund.order_id))

        await append(app, Bought(order_id="o-1", amount=7))
        await app.drain()
        instance = await app.store.sagas.newest("buy", "o-1")
        assert instance is not None
        assert instance.status == "completed"
        assert await written(database_url) == ["charge charge", "packed"]
