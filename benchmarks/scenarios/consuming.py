"""Messages from a broker into inbox, log and deliveries, against the broker's client receiving them into memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from benchmarks.brokers.client import GROUP, Client
from benchmarks.measuring.engine import PATIENCE, consuming, database_of
from benchmarks.measuring.turns import tidy
from benchmarks.scenarios.against import Against, against
from benchmarks.scenarios.setup import Scenario, expect
from postlude import Postlude

_TAKEN = """
SELECT (SELECT count(*) FROM postlude_inbox), (SELECT count(*) FROM postlude_event),
       (SELECT count(*) FROM postlude_delivery), (SELECT coalesce(sum(length(payload)), 0) FROM postlude_event)"""


def receiving(client: Client) -> Scenario:
    return against(client, f"{client.name}_consume_", _Sides)


class _Sides(Against):
    async def prepare(self) -> None:
        """Our handler is paused for good: what it would do is not what is measured."""
        await super().prepare()
        topic = await self._new_topic()
        async with self._app(topic) as app, app.worker():
            (handler,) = app.routes.handlers.values()
            await app.actions.pause(handler.destination, actor="bench", reason="only taking is measured")
        await self._client.remove(self._address, topic)

    async def ours(self) -> float:
        """Messages a second of a fresh worker, from before it registers to its last acknowledgement."""
        setup, events = self._setup, self._setup.params.events
        topic = await self._filled_topic()
        await self._backlog.clear()
        await setup.connection.execute("TRUNCATE postlude_inbox, postlude_consumer")
        async with setup.costs.metered(events), self._app(topic) as app:
            await app.start()
            setup.costs.count_statements(database_of(app))
            acknowledged = _acknowledged(app, events)
            tidy()
            start = time.perf_counter()
            async with app.worker():
                await asyncio.wait_for(acknowledged, PATIENCE)
                elapsed = time.perf_counter() - start
                await setup.costs.note_connections()
        taken = tuple(await setup.connection.fetchrow(_TAKEN) or ())
        expect(taken == (events, events, events, events * setup.params.bytes), f"our consumer has taken {taken}")
        await self._check(topic)
        return events / elapsed

    async def theirs(self) -> float:
        """Messages a second, from before it connects to the last acknowledgement."""
        setup, events = self._setup, self._setup.params.events
        topic = await self._filled_topic()
        tidy()
        with setup.costs.client(events):
            start = time.perf_counter()
            payloads = await self._client.consume(self._address, topic, events, setup.params.batch)
            elapsed = time.perf_counter() - start
        size = sum(map(len, payloads))
        expect(size == events * setup.params.bytes, f"{self._client.name} gave {len(payloads)} of {size} bytes")
        await self._check(topic)
        return events / elapsed

    def _app(self, topic: str) -> AbstractAsyncContextManager[Postlude]:
        params = self._setup.params
        return consuming(
            self._setup.url,
            self._address,
            group=GROUP,
            topic=topic,
            batch=params.batch,
            room=params.events + 1,
            options=self._client.options(topic),
        )

    async def _filled_topic(self) -> str:
        topic = await self._new_topic()
        await self._publish(topic)
        return topic

    async def _check(self, topic: str, patience: float = 10.0) -> None:
        """Some brokers do not answer an acknowledgement, and count it a moment later."""
        deadline = time.monotonic() + patience
        while left := await self._client.unread(self._address, topic):
            expect(time.monotonic() < deadline, f"{self._client.name} has {left} that nobody acknowledged")
            await asyncio.sleep(0.05)
        await self._client.remove(self._address, topic)


def _acknowledged(app: Postlude, events: int) -> asyncio.Future[None]:
    """Done when that many were; seen where the acknowledgements pass."""
    broker = app.broker()
    subscribe: Callable[..., AbstractAsyncContextManager[Any]] = broker.subscribe
    done = asyncio.get_running_loop().create_future()
    count = 0

    @asynccontextmanager
    async def subscribe_counted(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        async with subscribe(*arguments, **options) as subscription:
            acknowledge = subscription.ack

            async def ack(received: Sequence[Any]) -> None:
                nonlocal count
                await acknowledge(received)
                count += len(received)
                if count >= events and not done.done():
                    done.set_result(None)

            subscription.ack = ack
            yield subscription

    broker.subscribe = subscribe_counted
    return done
