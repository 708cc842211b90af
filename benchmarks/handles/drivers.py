"""Connections of PostgreSQL's drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg

from benchmarks.handles.handle import Handle, Transactions, encode
from benchmarks.measuring.database import connected
from benchmarks.measuring.engine import OrderPlaced
from benchmarks.measuring.plain import TOPIC, insert, new_id
from postlude import Postlude

_ORDER = "INSERT INTO shop_order (order_id, note) VALUES ($1, $2)"
_ORDER_PYFORMAT = "INSERT INTO shop_order (order_id, note) VALUES (%s, %s)"
_RAW_PYFORMAT = "INSERT INTO plain_outbox (event_id, topic, payload) VALUES (%s, %s, %s)"


@asynccontextmanager
async def _asyncpg(url: str, app: Postlude) -> AsyncIterator[Transactions]:
    async with connected(url) as connection:

        async def ours(event: OrderPlaced) -> None:
            async with connection.transaction():
                await connection.execute(_ORDER, event.order_id, event.note)
                await app.outbox.append(connection, event)

        async def raw(event: OrderPlaced) -> None:
            async with connection.transaction():
                await connection.execute(_ORDER, event.order_id, event.note)
                await insert(connection, encode(event))

        yield Transactions(ours, raw)


@contextmanager
def _psycopg(url: str, app: Postlude) -> Iterator[Transactions]:
    with psycopg.connect(url, autocommit=True) as connection:

        def ours(event: OrderPlaced) -> None:
            with connection.transaction():
                connection.execute(_ORDER_PYFORMAT, (event.order_id, event.note))
                app.sync.outbox.append(connection, event)

        def raw(event: OrderPlaced) -> None:
            with connection.transaction():
                connection.execute(_ORDER_PYFORMAT, (event.order_id, event.note))
                connection.execute(_RAW_PYFORMAT, (new_id(), TOPIC, encode(event)))

        yield Transactions(ours, raw)


@asynccontextmanager
async def _psycopg_async(url: str, app: Postlude) -> AsyncIterator[Transactions]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def ours(event: OrderPlaced) -> None:
            async with connection.transaction():
                await connection.execute(_ORDER_PYFORMAT, (event.order_id, event.note))
                await app.outbox.append(connection, event)

        async def raw(event: OrderPlaced) -> None:
            async with connection.transaction():
                await connection.execute(_ORDER_PYFORMAT, (event.order_id, event.note))
                await connection.execute(_RAW_PYFORMAT, (new_id(), TOPIC, encode(event)))

        yield Transactions(ours, raw)


HANDLES = (
    Handle(name="asyncpg", waits=_asyncpg),
    Handle(name="psycopg", blocks=_psycopg),
    Handle(name="psycopg-async", waits=_psycopg_async),
)
