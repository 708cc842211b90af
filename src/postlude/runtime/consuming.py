"""A consumer: takes messages from a broker in batches, commits them with us, then acknowledges them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack
from datetime import datetime, timedelta

import msgspec

from postlude.errors import BrokerUnavailable, DatabaseUnavailable
from postlude.inbox.accepting import Accepting
from postlude.ports.broker import Broker, Received, Start, Subscription
from postlude.ports.clock import Clock
from postlude.ports.receiving import Receiving
from postlude.runtime.breaker import Breaker
from postlude.runtime.outage import Outage

log = logging.getLogger("postlude.consumer")

LOOK_EVERY = 0.25
"""While too much is open: how often to look whether there is room again."""
LAG_EVERY = 5.0
WAIT = 0.5
"""For a message, before looking whether to stop."""
VISIT = 10.0
"""For the first message of a visit, while the broker says that there is one: joining a group takes its time."""


class ConsumingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer takes messages."""

    group: str
    start: Start = "earliest"
    batch: int = 500
    max_open: int = 10_000
    remembered: timedelta | None = None
    """How long the inbox remembers; None: for ever."""


class Consuming:
    def __init__(
        self, accepting: Accepting, broker: Broker, receiving: Receiving, clock: Clock, options: ConsumingOptions
    ) -> None:
        self.consumer = accepting.consumer
        self._accepting = accepting
        self._broker = broker
        self._receiving = receiving
        self._clock = clock
        self._options = options
        self._breaker = Breaker()
        self._outage = Outage(clock)
        self._stack = AsyncExitStack()
        self._subscription: Subscription | None = None
        self._stopped = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._room = 0
        self._next_lag = 0.0
        self._since: tuple[datetime, float] | None = None
        """Since when this consumer exists, and how far the clock of the database is ahead of ours."""

    # ------------------------------------------------------------ running

    async def run(self) -> None:
        """Until `stop`. Loses broker and database for as long as it takes."""
        self._ended.clear()
        try:
            while not self._stopped.is_set():
                await self._turn()
        finally:
            self._ended.set()

    async def visit(self) -> int:
        """Take what is there now; gives how many messages came. Raises DatabaseUnavailable."""
        try:
            subscription = await self._joined()
            received = await self._first(subscription) if await self._has_room() else []
            if received:
                await self._commit(subscription, received)
            else:
                self._next_lag = 0.0  # how it stands when nothing is left to take
            await self._tell_lag(subscription)
        except BrokerUnavailable as error:
            self._outage.report(self.consumer.name, error)
            return 0
        return len(received)

    def stop(self) -> None:
        """Take nothing more; what is being committed is."""
        self._stopped.set()

    async def leave(self, timeout: float) -> None:
        """End what is under way, then leave the group: what was not acknowledged goes to others."""
        with contextlib.suppress(TimeoutError):  # the group notices by itself
            async with asyncio.timeout(timeout):
                await self._ended.wait()
                await self._part()

    # ------------------------------------------------------------ a turn

    async def _turn(self) -> None:
        try:
            subscription = await self._joined()
            if not await self._has_room():
                await self._rest(LOOK_EVERY)
            elif received := await subscription.receive(self._limit(), WAIT):
                await self._take(subscription, received)
            self._breaker.succeed()
            await self._tell_lag(subscription)
        except (BrokerUnavailable, DatabaseUnavailable) as error:
            self._outage.report(self.consumer.name, error)
            await self._recover()
        except Exception:
            name, broker = self.consumer.name, self.consumer.broker
            log.exception("%s: taking from %s failed outside the contract; it is tried again", name, broker)
            await self._part()
            await self._recover()

    async def _take(self, subscription: Subscription, received: list[Received]) -> None:
        """While the database is away they stay in our hands."""
        while True:
            try:
                return await self._commit(subscription, received)
            except DatabaseUnavailable as error:
                self._outage.report(self.consumer.name, error)
                await self._recover()
                if self._stopped.is_set():
                    return None

    async def _commit(self, subscription: Subscription, received: list[Received]) -> None:
        """Committed first, acknowledged then."""
        self._room -= await self._accepting.accept(received, subscription.position, self._oldest())
        try:
            await subscription.ack(received)
        except BrokerUnavailable as error:  # they come again, and are dropped as duplicates
            self._outage.report(self.consumer.name, error)

    # ------------------------------------------------------------ pieces

    async def _first(self, subscription: Subscription) -> list[Received]:
        """What is there now; waits a while for what the broker says is there."""
        deadline = self._clock.monotonic() + VISIT
        while True:
            received = await subscription.receive(self._limit(), 0.05)
            if received or not await subscription.lag() or self._clock.monotonic() > deadline:
                return received

    async def _joined(self) -> Subscription:
        if self._subscription is None:
            await self._begin()
            options = self._options
            topics, batch = self.consumer.topics, options.batch
            joining = self._broker.subscribe(topics, options.group, start=options.start, prefetch=2 * batch)
            self._subscription = await self._stack.enter_async_context(joining)
        return self._subscription

    async def _part(self) -> None:
        """Whatever the adapter makes of it: the broker notices by itself who has left a group."""
        self._subscription = None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        except BrokerUnavailable as error:
            self._outage.report(self.consumer.name, error)
        except Exception:
            log.exception("%s: leaving %s failed outside the contract", self.consumer.name, self.consumer.broker)

    async def _has_room(self) -> bool:
        """Counted only when what was counted last time is used up. A little is none: batches would become tiny."""
        if self._room <= 0:
            limit = self._options.max_open
            room = limit - await self._receiving.open_entries(self.consumer.destinations, limit)
            self._room = room if room >= min(self._options.batch, max(1, limit // 2)) else 0
        return self._room > 0

    def _limit(self) -> int:
        return min(self._options.batch, self._room)

    async def _begin(self) -> None:
        """Known from its first day on, also while nothing comes."""
        if self._since is None:
            since, now = await self._receiving.begin(self.consumer.name)
            self._since = (since, now.timestamp() - self._clock.monotonic())

    def _oldest(self) -> datetime | None:
        """A message from before may have been seen and forgotten. A young consumer has forgotten nothing yet."""
        remembered = self._options.remembered
        if remembered is None or self._since is None:
            return None
        since, offset = self._since
        oldest = datetime.fromtimestamp(self._clock.monotonic() + offset, since.tzinfo) - remembered
        return oldest if since < oldest else None

    async def _tell_lag(self, subscription: Subscription) -> None:
        now = self._clock.monotonic()
        if now >= self._next_lag:
            self._next_lag = now + LAG_EVERY
            await self._receiving.record_lag(self.consumer.name, await subscription.lag())

    async def _recover(self) -> None:
        await self._rest(self._breaker.fail(self._clock.monotonic(), self._clock.chance()))

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
