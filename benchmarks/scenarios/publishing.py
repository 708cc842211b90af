"""A backlog from PostgreSQL to a broker, against the broker's client sending the same messages from memory."""

from __future__ import annotations

import time

from benchmarks.brokers.client import Client
from benchmarks.measuring.engine import database_of, drain, relaying
from benchmarks.measuring.turns import tidy
from benchmarks.scenarios.against import BACKLOG, Against, against
from benchmarks.scenarios.setup import Scenario, expect


def publishing(client: Client) -> Scenario:
    return against(client, f"{client.name}_", _Sides)


class _Sides(Against):
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
            await self._publish(topic)
            elapsed = time.perf_counter() - start
        await self._check(topic)
        return events / elapsed

    async def _check(self, topic: str) -> None:
        events, stored = self._setup.params.events, await self._client.stored(self._address, topic)
        expect(stored == events, f"{self._client.name} has {stored} messages of {events}")
        await self._client.remove(self._address, topic)
