"""Turns of ours and of a broker's client: on one server, with the same messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from uuid import uuid4

from benchmarks.brokers.client import Client, server_of
from benchmarks.measuring.backlog import Backlog
from benchmarks.measuring.engine import engine, orders
from benchmarks.measuring.turns import take_turns
from benchmarks.scenarios.setup import Pair, Scenario, Setup
from postlude import Postlude
from postlude.core.envelope import BrokerMessage, message

BACKLOG = "orders"


class Against(ABC):
    def __init__(self, setup: Setup, client: Client, address: str) -> None:
        self._setup = setup
        self._client = client
        self._address = address
        self._backlog = Backlog(setup.connection)

    @abstractmethod
    async def ours(self) -> float: ...

    @abstractmethod
    async def theirs(self) -> float: ...

    async def prepare(self) -> None:
        params = self._setup.params
        async with engine(self._setup.url, batch=params.batch) as app:
            await self._backlog.keep(app, BACKLOG, orders(params.events, params.bytes))
            self._ready = self._client.ready(await self._messages(app))

    async def _new_topic(self) -> str:
        topic = f"events.order.placed.{uuid4().hex[:8]}"
        await self._client.make(self._address, topic)
        return topic

    async def _publish(self, topic: str) -> None:
        await self._client.publish(self._address, topic, self._ready, self._setup.params.batch)

    async def _messages(self, app: Postlude) -> list[BrokerMessage]:
        """What the engine would send, in the order of the log."""
        found = await self._setup.connection.fetch(f"SELECT event_id FROM {BACKLOG}_delivery ORDER BY seq")
        ids = [row["event_id"] for row in found]
        events = await app.store.reading.events(ids)
        return [message(events[id]) for id in ids]


def against(client: Client, prefix: str, sides_of: type[Against]) -> Scenario:
    async def play(setup: Setup) -> AsyncIterator[Pair]:
        setup.costs.prefix = prefix
        with server_of(client) as address:
            sides = sides_of(setup, client, address)
            await sides.prepare()
            await sides.theirs()  # the first messages of a server's life are slow, whoever has to do with them
            setup.costs.forget_client()
            for repeat in setup.repeats:
                yield await take_turns(repeat, sides.ours, sides.theirs)

    return play
