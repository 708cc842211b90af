"""An order as a saga of plain functions: reserve stock, charge, ship, notify. What fails is undone, step by step.

What happens to an order is told on a broker: `memory://`, or the one that POSTLUDE_BROKER names.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from postlude import Context, Err, Event, Ok, Postlude, Saga, event

app = Postlude("sqlite:///orders.db", broker=os.environ.get("POSTLUDE_BROKER", "memory://"))
heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()


class Order(msgspec.Struct, frozen=True):
    """The state of the saga."""

    order_id: str
    quantity: int
    total: int
    city: str = "Ghent"


@event(key="order_id")
class OrderMoved(Event):
    order_id: str
    what: str


app.route(OrderMoved, topic="orders")


async def tell(order: Order, ctx: Context, what: str) -> None:
    await ctx.append(OrderMoved(order_id=order.order_id, what=what))


async def reserve_stock(order: Order, ctx: Context) -> Ok[int] | Err[str]:
    ctx.tx.execute("UPDATE stock SET free = free - ?", (order.quantity,))
    if ctx.tx.execute("SELECT free FROM stock").fetchone()[0] < 0:
        return Err("OutOfStock")  # and the update is rolled back
    await tell(order, ctx, "stock reserved")
    return Ok(order.quantity)


async def release_stock(order: Order, ctx: Context) -> None:
    ctx.tx.execute("UPDATE stock SET free = free + ?", (ctx.result,))
    await tell(order, ctx, "stock released")


async def charge_payment(order: Order, ctx: Context) -> Ok[str] | Err[str]:
    """Calls out: `ctx.idempotency_key` goes along, so that a second call for the same step charges nobody twice."""
    if order.total > 100:
        return Err("CardDeclined")
    await tell(order, ctx, "payment charged")
    return Ok(f"charge {ctx.idempotency_key}")


async def refund_payment(order: Order, ctx: Context) -> None:
    await tell(order, ctx, "payment refunded")


async def ship_order(order: Order, ctx: Context) -> Ok[None] | Err[str]:
    if order.city == "Atlantis":
        return Err("NoCourier")
    await tell(order, ctx, "shipped")
    return Ok(None)


async def notify_customer(order: Order, ctx: Context) -> Ok[None]:
    await tell(order, ctx, "customer notified")
    return Ok(None)


place_order = (
    Saga("place_order", state=Order)
    .step(reserve_stock, undo=release_stock)
    .step(charge_payment, undo=refund_payment, transactional=False)
    .pivot(ship_order)
    .step(notify_customer)
)
app.sagas.register(place_order)


@app.on(OrderMoved, topic="orders", consumer="tower", name="listen")
async def listen(moved: OrderMoved) -> None:
    """Somebody else, who hears of it through the broker."""
    await heard.put((moved.order_id, moved.what))


async def main() -> None:
    orders = [Order("o-1", 2, 40), Order("o-2", 1, 900), Order("o-3", 1, 10, "Atlantis")]
    async with app:
        await app.drain()  # the consumer has joined before anything is published
        async with app.transaction() as tx:
            tx.execute("CREATE TABLE stock (free INTEGER)")
            tx.execute("INSERT INTO stock VALUES (5)")
            ids = [await app.sagas.start(tx, place_order, order, id=order.order_id) for order in orders]
        async with app.worker():
            for saga_id in ids:
                view = await app.sagas.wait(saga_id, timeout=30)
                print(view.process_id, view.status, view.error or "")
            moves: dict[str, list[str]] = {}
            for _ in range(4 + 2 + 4):
                order_id, what = await heard.get()
                moves.setdefault(order_id, []).append(what)
        for order_id, what_happened in sorted(moves.items()):
            print(f"{order_id}:", ", ".join(what_happened))


if __name__ == "__main__":
    asyncio.run(main())
