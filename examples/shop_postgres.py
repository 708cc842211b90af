"""A shop on PostgreSQL: orders, stock and events in one database, on the shop's own asyncpg pool.

Make a database, run `postlude db upgrade --database URL`, then `python shop_postgres.py URL`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import asyncpg

from postlude import Context, Err, Event, Ok, Postlude, event

URL = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("POSTLUDE_DATABASE", "postgresql://localhost/shop")
app = Postlude(URL, broker="memory://")


@event(key="order_id", entity="order", subjects=("customer_id",))
class OrderPlaced(Event):
    order_id: str
    customer_id: str
    item: str
    quantity: int


@event(key="order_id", entity="order")
class StockReserved(Event):
    order_id: str


@event(key="order_id", entity="order")
class StockShort(Event):
    order_id: str
    missing: int


for published in (OrderPlaced, StockReserved, StockShort):
    app.route(published)


@app.on(OrderPlaced, name="reserve")
async def reserve(placed: OrderPlaced, ctx: Context) -> Ok[StockReserved] | Err[StockShort]:
    """What it writes through ctx.tx, what it answers and the settling are one transaction."""
    free = await ctx.tx.fetchval(
        "UPDATE stock SET free = free - $2 WHERE item = $1 RETURNING free", placed.item, placed.quantity
    )
    if free < 0:
        return Err(StockShort(order_id=placed.order_id, missing=-free))  # and the update is rolled back
    return Ok(StockReserved(order_id=placed.order_id))


async def place(pool: Any, placed: OrderPlaced) -> None:
    """The order and its event commit together, or neither does."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("INSERT INTO orders VALUES ($1, $2)", placed.order_id, placed.customer_id)
        await app.outbox.append(connection, placed)


async def main() -> None:
    async with app, asyncpg.create_pool(URL, min_size=1, max_size=4) as pool:
        await pool.execute("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text)")
        await pool.execute("CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, free integer)")
        await pool.execute("INSERT INTO stock VALUES ('lamp', 3) ON CONFLICT (item) DO UPDATE SET free = 3")
        for number in (1, 2):
            await place(pool, OrderPlaced(order_id=f"o-{number}", customer_id="c-7", item="lamp", quantity=2))
        await app.drain()
        for message in sorted(app.broker().messages(), key=lambda sent: (str(sent.key), sent.headers["ce_type"])):
            print(message.key, message.headers["ce_type"], message.payload.decode())
        print("free:", await pool.fetchval("SELECT free FROM stock WHERE item = 'lamp'"))


if __name__ == "__main__":
    asyncio.run(main())
