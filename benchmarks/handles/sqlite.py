"""Connections of sqlite3 and aiosqlite, as they are without options: a transaction begins with its first write."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import aiosqlite

from benchmarks.handles.handle import Handle, Transactions, encode
from benchmarks.measuring.engine import OrderPlaced
from benchmarks.measuring.plain import TOPIC, new_id
from postlude import Postlude

_ORDER = "INSERT INTO shop_order (order_id, note) VALUES (?, ?)"
_RAW = "INSERT INTO plain_outbox (event_id, topic, payload) VALUES (?, ?, ?)"


@contextmanager
def _sqlite3(url: str, app: Postlude) -> Iterator[Transactions]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:

        def ours(event: OrderPlaced) -> None:
            with connection:
                connection.execute(_ORDER, (event.order_id, event.note))
                app.sync.outbox.append(connection, event)

        def raw(event: OrderPlaced) -> None:
            with connection:
                connection.execute(_ORDER, (event.order_id, event.note))
                connection.execute(_RAW, (new_id().bytes, TOPIC, encode(event)))

        yield Transactions(ours, raw)


@asynccontextmanager
async def _aiosqlite(url: str, app: Postlude) -> AsyncIterator[Transactions]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:

        async def ours(event: OrderPlaced) -> None:
            await connection.execute(_ORDER, (event.order_id, event.note))
            await app.outbox.append(connection, event)
            await connection.commit()

        async def raw(event: OrderPlaced) -> None:
            await connection.execute(_ORDER, (event.order_id, event.note))
            await connection.execute(_RAW, (new_id().bytes, TOPIC, encode(event)))
            await connection.commit()

        yield Transactions(ours, raw)


HANDLES = (
    Handle(name="sqlite3", database="sqlite", blocks=_sqlite3),
    Handle(name="aiosqlite", database="sqlite", waits=_aiosqlite),
)
