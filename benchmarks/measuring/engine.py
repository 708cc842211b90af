"""Our side: an app as a process would have it, events of a given size, a worker that drains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from postlude import Event, Postlude, Settings, event
from postlude.runtime.relay import Relay
from postlude.runtime.worker import Worker
from postlude.storage.postgres.connection import Database
from postlude.storage.postgres.store import PostgresStore

DESTINATION = "default"
KEYS = [f"o-{number:04d}" for number in range(5000)]
PATIENCE = 600.0


@event(type="order.placed", key="order_id", entity="order")
class OrderPlaced(Event):
    order_id: str
    note: str


def orders(count: int, size: int, keys: Sequence[str] = KEYS) -> list[OrderPlaced]:
    """Events with payloads of that many bytes; the keys take turns."""
    return [_order(keys[number % len(keys)], size) for number in range(count)]


def _order(key: str, size: int) -> OrderPlaced:
    bare = len(f'{{"order_id":"{key}","note":""}}')
    return OrderPlaced(order_id=key, note="x" * (size - bare))


@asynccontextmanager
async def engine(url: str, *, batch: int, schema: str = "public") -> AsyncIterator[Postlude]:
    """A fresh app with a broker that forgets: nothing is connected, nothing is prepared."""
    async with relaying(url, "memory://", batch=batch, schema=schema) as app:
        app.broker(DESTINATION).keep = False
        yield app


@asynccontextmanager
async def relaying(
    url: str,
    broker: str,
    *,
    batch: int,
    schema: str = "public",
    topic: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> AsyncIterator[Postlude]:
    """The same with a broker of choice, to a topic of choice."""
    brokers = {DESTINATION: {"url": broker, "options": dict(options or {})}}
    app = Postlude(url, settings=Settings.load(schema=schema, relay={"batch_size": batch}, brokers=brokers))
    app.route(OrderPlaced, to=DESTINATION, topic=topic)
    try:
        yield app
    finally:
        await app.close()


@asynccontextmanager
async def consuming(
    url: str, broker: str, *, group: str, topic: str, batch: int, room: int, options: Mapping[str, Any]
) -> AsyncIterator[Postlude]:
    """A fresh app that takes orders from a topic, with room for so many open ones."""
    consumer = {"batch_size": batch, "max_open": room}
    brokers = {DESTINATION: {"url": broker, "options": dict(options)}}
    app = Postlude(url, settings=Settings.load(consumer=consumer, brokers=brokers))

    @app.on(OrderPlaced, name="bench", topic=topic, consumer=group)
    async def handle(_placed: OrderPlaced) -> None:
        raise RuntimeError("this handler is paused")

    try:
        yield app
    finally:
        await app.close()


def database_of(app: Postlude) -> Database:
    """Where its statements pass."""
    return cast("PostgresStore", app.store).database


async def drain(worker: Worker, events: int) -> None:
    """Wait until a running worker has settled that many."""
    await settled(worker.relays[DESTINATION], events)


async def settled(relay: Relay, events: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while relay.settled < events:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {relay.settled} of {events} events were settled in {PATIENCE:.0f} s")
        await asyncio.sleep(0.002)
