"""What a caller's transactions leave behind, on either side and either database: cleared before, counted afterwards."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple, Protocol

from benchmarks.measuring import plain
from benchmarks.measuring.backlog import Backlog
from benchmarks.measuring.database import Connection

_ON_POSTGRES = """
DROP TABLE IF EXISTS shop_order;
CREATE TABLE shop_order (id bigserial PRIMARY KEY, order_id text NOT NULL, note text NOT NULL)"""
_ON_SQLITE = """
DROP TABLE IF EXISTS shop_order;
CREATE TABLE shop_order (id integer PRIMARY KEY, order_id text NOT NULL, note text NOT NULL);
DROP TABLE IF EXISTS plain_outbox;
CREATE TABLE plain_outbox (
    id         integer PRIMARY KEY,
    event_id   blob NOT NULL UNIQUE,
    topic      text NOT NULL,
    payload    blob NOT NULL,
    status     text NOT NULL DEFAULT 'pending',
    created_at text NOT NULL DEFAULT CURRENT_TIMESTAMP
);
DELETE FROM postlude_delivery;
DELETE FROM postlude_event;
PRAGMA wal_checkpoint(TRUNCATE)"""
_LEFT = """
SELECT (SELECT count(*) FROM shop_order), (SELECT count(*) FROM postlude_delivery),
       (SELECT count(*) FROM postlude_event), (SELECT coalesce(sum(length(payload)), 0) FROM postlude_event),
       (SELECT count(*) FROM plain_outbox), (SELECT coalesce(sum(length(payload)), 0) FROM plain_outbox)"""


class Left(NamedTuple):
    orders: int
    deliveries: int
    events: int
    bytes: int
    raw: int
    raw_bytes: int


class Shop(Protocol):
    async def clear(self) -> None: ...
    async def left(self) -> Left: ...


class PostgresShop:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def clear(self) -> None:
        await self._connection.execute(_ON_POSTGRES)
        await Backlog(self._connection).clear()
        await plain.clear(self._connection)

    async def left(self) -> Left:
        found = await self._connection.fetchrow(_LEFT)
        return Left(*(found or ()))


class SqliteShop:
    """A connection for each call: an open one would only be in the way."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def clear(self) -> None:
        connection = sqlite3.connect(self._path)
        try:
            connection.executescript(_ON_SQLITE)
        finally:
            connection.close()

    async def left(self) -> Left:
        connection = sqlite3.connect(self._path)
        try:
            return Left(*connection.execute(_LEFT).fetchone())
        finally:
            connection.close()
