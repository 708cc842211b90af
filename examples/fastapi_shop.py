"""FastAPI with SQLAlchemy: `uvicorn fastapi_shop:api`. The worker runs inside the web process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from postlude import Context, Event, Postlude, event

URL = "sqlite+aiosqlite:///shop.db"
engine = create_async_engine(URL)
sessions = async_sessionmaker(engine)
postlude = Postlude(URL, transactions=sessions)


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str


@postlude.on(OrderPlaced)
async def reserve(placed: OrderPlaced, ctx: Context) -> None:
    await ctx.tx.execute(text("UPDATE orders SET state = 'reserved' WHERE id = :id"), {"id": placed.order_id})


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE IF NOT EXISTS orders (id TEXT, state TEXT)"))
    async with postlude, postlude.worker():
        yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan)


@api.post("/orders/{order_id}")
async def place(order_id: str) -> None:
    async with sessions.begin() as session:
        await session.execute(text("INSERT INTO orders VALUES (:id, 'new')"), {"id": order_id})
        await postlude.outbox.append(session, OrderPlaced(order_id=order_id))


@api.get("/orders/{order_id}")
async def show(order_id: str) -> str | None:
    async with sessions() as session:
        return await session.scalar(text("SELECT state FROM orders WHERE id = :id"), {"id": order_id})
