"""The smallest Postlude app: run this file, then `postlude run quickstart:app` beside it."""

import asyncio

from postlude import Event, Postlude, event

app = Postlude("sqlite:///shop.db")


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str


@app.on(OrderPlaced)
async def reserve(placed: OrderPlaced) -> None:
    print("reserve stock for", placed.order_id)


async def main() -> None:
    async with app, app.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT)")
        tx.execute("INSERT INTO orders VALUES ('o-1')")
        await app.outbox.append(tx, OrderPlaced(order_id="o-1"))


if __name__ == "__main__":
    asyncio.run(main())
