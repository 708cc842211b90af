"""FastAPI with SQLAlchemy: `uvicorn fastapi_shop:api`. The worker runs inside the web process.

It expects a table: `CREATE TABLE orders (id TEXT, state TEXT)`.
"""

from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from postlude import Context, Event, Postlude, event

URL = "sqlite+aiosqlite:///shop.db"
sessions = async_sessionmaker(create_async_engine(URL))
postlude = Postlude(URL, transactions=sessions)
api = FastAPI(lifespan=postlude.lifespan)


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str


@postlude.on(OrderPlaced)
async def reserve(placed: OrderPlaced, ctx: Context) -> None:
    await ctx.tx.execute(text("UPDATE orders SET state = 'reserved' WHERE id = :id"), {"id": placed.order_id})


@api.post("/orders/{order_id}")
async def place(order_id: str) -> None:
    async with sessions.begin() as session:
        await session.execute(text("INSERT INTO orders VALUES (:id, 'new')"), {"id": order_id})
        await postlude.outbox.append(session, OrderPlaced(order_id=order_id))
