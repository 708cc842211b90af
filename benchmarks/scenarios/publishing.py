"""A backlog from PostgreSQL to a broker, against the broker's client sending the same messages from memory."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from uuid import uuid4

from benchmarks.brokers.client import Client, server_of
from benchmarks.measuring.backlog import Backlog
from benchmarks.measuring.engine import database_of, drain, engine, orders, relaying
from benchmarks.measuring.turns import take_turns, tidy
from benchmarks.scenarios.setup import Pair, Scenario, Setup, expect
from postlude import Postlude
from postlude.core.envelope import BrokerMessage, message

BACKLOG = "orders"


def publishing(client: Client) -> Scenario:
    async def publish(setup: Setup) -> AsyncIterator[Pair]:
        setup.costs.prefix = f"{client.name}_"
        with server_of(client) as address:
            sides = _Sides(setup, client, address)
            await sides.prepare()
            await sides.theirs()  # the first messages of a server's life are slow, whoever sends them
            setup.costs.forget_client()
            for repeat in setup.repeats:
                yield await take_turns(repeat, sides.ours, sides.theirs)

    return publish


class _Sides:
    def __init__(self, setup: Setup, client: Client, address: str) -> None:
        self._setup = setup
        self._client = client
        self._address = address
        self._backlog = Backlog(setup.connection)

    async def prepare(self) -> None:
        params = self._setup.params
        async with engine(self._setup.url, batch=params.batch) as app:
            await self._backlog.keep(app, BACKLOG, orders(params.events, params.bytes))
            self._ready = self._client.ready(await messages_of(app, self._setup))

    async def ours(self) -> float:
        """Events a second of a fresh worker, from before it registers to its last receipt."""
        setup, events = self._setup, self._setup.params.events
        topic = await self._new_topic()
        await self._backlog.restore(BACKLOG)
        options = self._client.options(topic)
        async with (
            setup.costs.metered(events),
            relaying(setup.url, self._address, batch=setup.params.batch, topic=topic, options=options) as app,
        ):
            await app.start()
            setup.costs.count_statements(database_of(app))
            tidy()
            start = time.perf_counter()
            async with app.worker() as worker:
                await drain(worker, events)
                elapsed = time.perf_counter() - start
                await setup.costs.note_connections()
        expect(await self._backlog.open_and_settled() == (0, events), "the engine did not settle everything")
        await self._check(topic)
        return events / elapsed

    async def theirs(self) -> float:
        """Messages a second, from before it connects to the last confirmation."""
        setup, events = self._setup, self._setup.params.events
        topic = await self._new_topic()
        tidy()
        with setup.costs.client(events):
            start = time.perf_counter()
            await self._client.publish(self._address, topic, self._ready, setup.params.batch)
            elapsed = time.perf_counter() - start
        await self._check(topic)
        return events / elapsed

    async def _new_topic(self) -> str:
        topic = new_topic()
        await self._client.make(self._address, topic)
        return topic

    async def _check(self, topic: str) -> None:
        events, stored = self._setup.params.events, await self._client.stored(self._address, topic)
        expect(stored == events, f"{self._client.name} has {stored} messages of {events}")
        await self._client.remove(self._address, topic)


def new_topic() -> str:
    return f"events.order.placed.{uuid4().hex[:8]}"


async def messages_of(app: Postlude, setup: Setup) -> list[BrokerMessage]:
    """What the engine would send, in the order of the log."""
    found = await setup.connection.fetch(f"SELECT event_id FROM {BACKLOG}_delivery ORDER BY seq")
    ids = [row["event_id"] for row in found]
    events = await app.store.reading.events(ids)
    return [message(events[id]) for id in ids]
