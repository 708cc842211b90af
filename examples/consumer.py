"""Two services and a broker between them: the shop relays what happened, billing consumes it, each with a database.

Both run in this process on a broker in memory. With POSTLUDE_BROKER=kafka://... (or amqp://, redis://, nats://) each may
have a process of its own: `postlude run consumer:shop` and `postlude run consumer:billing`.
"""

from __future__ import annotations

import asyncio
import os

from postlude import Context, Event, Postlude, event

BROKER = os.environ.get("POSTLUDE_BROKER", "memory://town")
shop = Postlude("sqlite:///shop.db", broker=BROKER)
billing = Postlude("sqlite:///billing.db", broker=BROKER)


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str
    total: int


shop.route(OrderPlaced)


@billing.on(OrderPlaced, consumer="billing")
async def write_invoice(placed: OrderPlaced, ctx: Context) -> None:
    ctx.tx.execute("CREATE TABLE IF NOT EXISTS invoices (order_id TEXT, total INTEGER)")
    ctx.tx.execute("INSERT INTO invoices VALUES (?, ?)", (placed.order_id, placed.total))


async def place(order_id: str, total: int) -> None:
    async with shop.transaction() as tx:
        await shop.outbox.append(tx, OrderPlaced(order_id=order_id, total=total))


async def main() -> None:
    async with shop, billing:
        await place("o-1", 42)
        await shop.drain()
        (sent,) = await shop.insight.list(status="sent")
        await shop.actions.replay([sent.event_id], to="default", actor="ann", reason="the broker delivers twice")
        await shop.drain()
        await billing.drain()
        async with billing.transaction() as tx:
            for order_id, total in tx.execute("SELECT order_id, total FROM invoices"):
                print("invoice for", order_id, total)
        for consumer in await billing.insight.consumers():
            print(consumer.received, "received,", consumer.duplicates, "dropped as duplicate")


if __name__ == "__main__":
    asyncio.run(main())
