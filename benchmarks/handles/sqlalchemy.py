"""SQLAlchemy's sessions and connections: a new one for each transaction from an engine with its usual pool, and plain
`insert(table)` for every row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from benchmarks.handles.handle import LAYER_AIM, Handle, Transactions, encode
from benchmarks.measuring.engine import OrderPlaced
from benchmarks.measuring.plain import TOPIC, new_id
from postlude import Postlude

# Without their ids: these are the database's to give, and nobody asks for them here.
_orders = sa.table("shop_order", sa.column("order_id", sa.Text), sa.column("note", sa.Text))
_outbox = sa.table(
    "plain_outbox", sa.column("event_id", sa.Uuid), sa.column("topic", sa.Text), sa.column("payload", sa.LargeBinary)
)
_INSERT_ORDER, _INSERT_RAW = sa.insert(_orders), sa.insert(_outbox)


def _order(event: OrderPlaced) -> dict[str, Any]:
    return {"order_id": event.order_id, "note": event.note}


def _raw(event: OrderPlaced) -> dict[str, Any]:
    return {"event_id": new_id(), "topic": TOPIC, "payload": encode(event)}


def _session(engine: sa.Engine) -> Any:
    return sessionmaker(engine).begin


def _connection(engine: sa.Engine) -> Any:
    return engine.begin


@contextmanager
def _blocking(driver: str, begin_on: Callable[[sa.Engine], Any], url: str, app: Postlude) -> Iterator[Transactions]:
    engine = sa.create_engine(_with_driver(url, driver))
    begin = begin_on(engine)

    def ours(event: OrderPlaced) -> None:
        with begin() as handle:
            handle.execute(_INSERT_ORDER, _order(event))
            app.sync.outbox.append(handle, event)

    def raw(event: OrderPlaced) -> None:
        with begin() as handle:
            handle.execute(_INSERT_ORDER, _order(event))
            handle.execute(_INSERT_RAW, _raw(event))

    try:
        yield Transactions(ours, raw)
    finally:
        engine.dispose()


@asynccontextmanager
async def _waiting(driver: str, url: str, app: Postlude) -> AsyncIterator[Transactions]:
    engine = create_async_engine(_with_driver(url, driver))
    begin = async_sessionmaker(engine).begin

    async def ours(event: OrderPlaced) -> None:
        async with begin() as session:
            await session.execute(_INSERT_ORDER, _order(event))
            await app.outbox.append(session, event)

    async def raw(event: OrderPlaced) -> None:
        async with begin() as session:
            await session.execute(_INSERT_ORDER, _order(event))
            await session.execute(_INSERT_RAW, _raw(event))

    try:
        yield Transactions(ours, raw)
    finally:
        await engine.dispose()


def _with_driver(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


HANDLES = (
    Handle(name="sqlalchemy-async", aim=LAYER_AIM, waits=partial(_waiting, "asyncpg")),
    Handle(name="sqlalchemy", aim=LAYER_AIM, blocks=partial(_blocking, "psycopg", _session)),
    Handle(name="sqlalchemy-psycopg2", aim=LAYER_AIM, blocks=partial(_blocking, "psycopg2", _session)),
    Handle(name="sqlalchemy-core", aim=LAYER_AIM, blocks=partial(_blocking, "psycopg", _connection)),
    Handle(name="sqlalchemy-sqlite", database="sqlite", aim=LAYER_AIM, blocks=partial(_blocking, "pysqlite", _session)),
)
