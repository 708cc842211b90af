"""The demo's shop: customers who order, a warehouse, a mail service, and everything that can go wrong with them."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

import msgspec

from postlude.app import Postlude
from postlude.cli.demo import tables
from postlude.core.envelope import BrokerMessage
from postlude.core.event import Event, event
from postlude.core.outcome import Failed, Fault, Ok, Outcome, Reject
from postlude.outbox.prepare import new_id
from postlude.runtime.context import Context

CUSTOMERS = ("ada", "bela", "carl", "dora", "emil", "fay")
PRODUCTS = ("lamp", "chair", "table", "teapot", "mirror")
POISON = "perpetual motion machine"
REFUSED_EVERY = 15
SELLING = 2.5
"""Seconds in which the orders come in, if the database is fast enough."""


@event(key="customer")
class OrderPlaced(Event):
    order_id: str
    customer: str
    product: str
    quantity: int


@event(key="order_id")
class StockReserved(Event):
    order_id: str
    quantity: int


class CardRefused(Exception):
    """Rolls an order back, and its event with it."""


class Order(msgspec.Struct, frozen=True):
    """What a customer will do; decided beforehand, so that every run is the same."""

    placed: OrderPlaced
    event_id: UUID
    clicks: int = 1
    is_refused: bool = False


class Shop:
    """Handlers and customers. What fails, and how often, is drawn from a seeded random."""

    def __init__(self, app: Postlude, orders: int, *, seed: int = 7) -> None:
        self.app = app
        self.orders = plan(orders, Random(seed))  # noqa: S311 - a demo's dice
        self.done = 0
        self.bug_is_fixed = False
        self._seed = seed
        self._seen: set[str] = set()
        self._numbers = {order.event_id: number for number, order in enumerate(self.orders)}
        app.route(OrderPlaced)
        app.route(StockReserved)
        app.on(OrderPlaced, name="reserve_stock")(self.reserve_stock)
        app.on(OrderPlaced, name="send_mail", transactional=False)(self.send_mail)
        app.broker().fate = self.fate

    @property
    def deliveries(self) -> int:
        """How many there should be: an order goes to three destinations, its reservation to one."""
        return 4 * sum(not order.is_refused for order in self.orders)

    # ------------------------------------------------------------ after the commit

    async def reserve_stock(self, order: OrderPlaced, ctx: Context) -> Ok[StockReserved]:
        """Its row, the event it appends and the settling of its delivery are one transaction."""
        if order.product == POISON and not self.bug_is_fixed:
            raise Reject(f"no shelf fits a {order.product}")
        reserved = {"event_id": str(ctx.event_id), "product": order.product, "quantity": order.quantity}
        await tables.run_sql(ctx.tx, tables.EFFECT, **reserved)
        if ctx.attempt == 1 and self._goes_wrong("reserve", ctx.event_id, 0.15):
            raise TimeoutError("the warehouse did not answer")  # after the row was written: it must vanish again
        return Ok(StockReserved(order_id=order.order_id, quantity=order.quantity))

    async def send_mail(self, _order: OrderPlaced, ctx: Context) -> None:
        """Calls out. The service answers too late at times, so the same mail is asked for twice; it knows the key."""
        async with self.app.transaction() as tx:
            asked = {"idempotency_key": ctx.idempotency_key, "event_id": str(ctx.event_id)}
            await tables.run_sql(tx, tables.MAIL, **asked)
        if ctx.attempt == 1 and self._goes_wrong("mail", ctx.event_id, 0.08):
            raise ConnectionError("the mail service hung up before it answered")

    def fate(self, message: BrokerMessage) -> Outcome | None:
        """The broker refuses some messages once."""
        if self._goes_wrong("broker", message.id, 0.1):
            return Failed(Fault("BrokerRefused", message="try again"))
        return None

    # ------------------------------------------------------------ before the commit

    async def sell(self) -> None:
        """All customers at once."""
        lanes = [[order for order in self.orders if order.placed.customer == name] for name in CUSTOMERS]
        outage = asyncio.create_task(self._outage())
        try:
            await asyncio.gather(*(self._customer(orders) for orders in lanes))
            await outage
        finally:
            outage.cancel()

    async def _customer(self, orders: list[Order]) -> None:
        pause = SELLING / max(1, len(orders))
        for order in orders:
            began = self.app.clock.monotonic()
            # A double click is two transactions at the same time with the same event id.
            await asyncio.gather(*(self._place(order) for _ in range(order.clicks)))
            self.done += 1
            await asyncio.sleep(max(0.0, pause - (self.app.clock.monotonic() - began)))

    async def _place(self, order: Order) -> None:
        placed = order.placed
        row = {"order_id": placed.order_id, "customer": placed.customer, "event_id": str(order.event_id)}
        try:
            async with self.app.transaction() as tx:
                await tables.run_sql(tx, tables.CLICK, order_id=placed.order_id)
                await tables.run_sql(tx, tables.ORDER, **row)
                await self.app.outbox.append(tx, placed, id=order.event_id)
                if order.is_refused:
                    raise CardRefused
        except CardRefused:
            pass

    async def _outage(self) -> None:
        """The broker is down for a while; nobody loses an attempt by it."""
        broker = self.app.broker()
        await asyncio.sleep(SELLING * 0.3)
        broker.is_down = True
        try:
            await asyncio.sleep(SELLING * 0.2)
        finally:
            broker.is_down = False

    def _goes_wrong(self, where: str, event_id: UUID, share: float) -> bool:
        """Once for an order at most."""
        mark, number = f"{where}:{event_id}", self._numbers.get(event_id)
        if mark in self._seen or number is None:
            return False
        self._seen.add(mark)
        return Random(f"{self._seed}:{where}:{number}").random() < share  # noqa: S311 - a demo's dice


def plan(orders: int, dice: Random) -> list[Order]:
    """So many orders that come through, and some more that are refused. One in the middle is poison."""
    planned = []
    for number in range(1, orders + 1):
        product = POISON if number == (orders + 1) // 2 else dice.choice(PRODUCTS)
        planned.append(_order(number, product, dice, clicks=2 if dice.random() < 0.06 or number == 1 else 1))
    for number in range(orders + 1, orders + 1 + max(1, orders // REFUSED_EVERY)):
        planned.insert(dice.randrange(len(planned)), _order(number, dice.choice(PRODUCTS), dice, is_refused=True))
    return planned


def _order(number: int, product: str, dice: Random, *, clicks: int = 1, is_refused: bool = False) -> Order:
    placed = OrderPlaced(
        order_id=f"o-{number}", customer=dice.choice(CUSTOMERS), product=product, quantity=dice.randint(1, 5)
    )
    return Order(placed, new_id(), clicks, is_refused)
