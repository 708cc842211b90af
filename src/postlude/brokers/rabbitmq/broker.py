"""RabbitMQ as a broker: publisher confirms, persistent messages, a topic exchange, a queue for each group and topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from postlude.brokers.rabbitmq.faults import BLOCKED
from postlude.brokers.rabbitmq.link import Link, prepared, unavailable
from postlude.brokers.rabbitmq.member import joining
from postlude.brokers.rabbitmq.options import Target, target
from postlude.brokers.rabbitmq.publishing import Call
from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import Outcome, Unavailable
from postlude.ports.broker import BrokerFeatures, Start, Subscription


class RabbitmqBroker:
    """Connects when it must and connects again by itself. Members of groups have connections of their own: a server
    that is short of memory stops those that publish."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._target: Target = target(url, options or {})
        self._options = self._target.options
        self._link: Link | None = None
        self._connecting = asyncio.Lock()
        self._under_way = 0
        self._still = asyncio.Event()
        self._still.set()
        self.features = BrokerFeatures(
            ordered_by_key=self._options.single_active, ordered_failure=True, max_bytes=self._options.max_bytes
        )

    def __repr__(self) -> str:
        return f"<RabbitmqBroker {self._target.shown}>"

    async def open(self) -> None:
        """Nothing yet: an outage at the start is like any other."""

    async def close(self) -> None:
        """Wait for what is under way, which ends in time, and disconnect. A later publish connects again."""
        await self._still.wait()
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]:
        if not messages:
            return []
        deadline = asyncio.get_running_loop().time() + self._options.timeout
        with self._counted():
            link = await self._linked(deadline)
            if await link.is_blocked():
                return [BLOCKED] * len(messages)
            outcomes = await Call(link, self._options, messages, deadline).run()
            if any(isinstance(outcome, Unavailable) and outcome != BLOCKED for outcome in outcomes):
                await self._forget(link)
            return outcomes

    def subscribe(
        self,
        topics: Sequence[str],
        group: str,
        *,
        start: Start = "earliest",  # noqa: ARG002 - a queue has what was published since it was made
        prefetch: int = 500,
    ) -> AbstractAsyncContextManager[Subscription]:
        return joining(self._target, topics, group, prefetch)

    async def _linked(self, deadline: float) -> Link:
        try:
            async with asyncio.timeout_at(deadline), self._connecting:
                if self._link is None or not self._link.is_alive:
                    self._link = None
                    self._link = await prepared(self._target)
                return self._link
        except TimeoutError as error:
            raise unavailable(self._target, error) from None

    async def _forget(self, link: Link) -> None:
        """Whatever ails it, the next call begins anew, and finds the exchange or makes it."""
        if self._link is link:
            self._link = None
        await link.cut()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._under_way += 1
        self._still.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._still.set()
