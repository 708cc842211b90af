"""One call of publish: all keys at once, the messages of a key one after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from uuid import UUID

from aiormq.channel import Channel

from postlude.brokers.rabbitmq.faults import (
    BLOCKED,
    ERRORS,
    GONE,
    LOST,
    MAX_ROUTING_KEY,
    SLOW,
    TOO_LARGE,
    TOO_LONG,
    blames_one,
    failure,
)
from postlude.brokers.rabbitmq.link import Link, telling
from postlude.brokers.rabbitmq.options import RabbitmqOptions
from postlude.brokers.rabbitmq.wire import properties
from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import HELD, SENT, Outcome, Unavailable

LOOK = 0.5
"""How often to look whether the server has blocked us, in seconds."""
LARGE = 16_384
"""From this size on wait until a message is on its way: a batch must not lie in memory twice."""
STEP = 4
"""Every so many wait too, and find out that the connection is gone; asyncio warns about each write to such a one."""


class Call:
    """Messages of a key wait for the confirm of the one before: that alone guarantees that none overtakes.

    The channel is this call's own, so that an error that closes it is nobody else's. When the server closes it because
    of one message it does not say which: what was not confirmed is then published again, one message at a time.
    """

    def __init__(
        self, link: Link, options: RabbitmqOptions, messages: Sequence[BrokerMessage], deadline: float
    ) -> None:
        self._link = link
        self._options = options
        self._messages = messages
        self._deadline = deadline
        self._outcomes: list[Outcome | None] = [None] * len(messages)
        self._left: list[list[int]] = []
        # A return names the message by its id alone: two of one id are never under way together.
        counted = Counter(message.id for message in messages)
        self._alone: dict[UUID, asyncio.Lock] = {id: asyncio.Lock() for id, count in counted.items() if count > 1}

    async def run(self) -> list[Outcome]:
        reason = await self._together(self._chains())
        self._left.sort()
        while self._left and reason is None:
            chain = self._left.pop(0)
            reason = await self._together([chain])
        return [outcome or reason or GONE for outcome in self._outcomes]

    def _chains(self) -> list[list[int]]:
        """The positions of each key, in order; a message without a key stands alone."""
        keyed: dict[str | int, list[int]] = {}
        for position, message in enumerate(self._messages):
            keyed.setdefault(position if message.key is None else message.key, []).append(position)
        return list(keyed.values())

    async def _together(self, chains: list[list[int]]) -> Unavailable | None:
        """Each chain under way at once. What it gives is why the rest was given up."""
        try:
            async with self._link.in_time(max(0.0, self._deadline - asyncio.get_running_loop().time())):
                channel = await self._link.channel()
        except LOST:
            return GONE
        tasks = [asyncio.create_task(self._chain(channel, chain, alone=len(chains) == 1)) for chain in chains]
        try:
            reason = await self._confirmed(tasks)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for one in ended:
            if isinstance(one, Exception):
                raise one
        if reason is None and not channel.is_closed:
            self._link.give_back(channel)
        return reason

    async def _confirmed(self, tasks: list[asyncio.Task[None]]) -> Unavailable | None:
        now = asyncio.get_running_loop().time
        waiting = set(tasks)
        while waiting:
            if (left := self._deadline - now()) <= 0:
                return SLOW
            _, waiting = await asyncio.wait(waiting, timeout=min(LOOK, left))
            if waiting and await self._link.is_blocked():
                return BLOCKED
        return None

    async def _chain(self, channel: Channel, chain: list[int], *, alone: bool) -> None:
        for nth, position in enumerate(chain):
            try:
                outcome = await self._publish(channel, position)
            except ERRORS as error:
                if blames_one(error) and not alone:
                    self._left.append(chain[nth:])
                    return
                outcome = failure(error, self._options.exchange, self._messages[position].topic)
            self._outcomes[position] = outcome
            if outcome is not SENT:
                rest = outcome if isinstance(outcome, Unavailable) else HELD
                for later in chain[nth + 1 :]:
                    self._outcomes[later] = rest
                return

    async def _publish(self, channel: Channel, position: int) -> Outcome:
        options, message = self._options, self._messages[position]
        if options.max_bytes is not None and len(message.payload) > options.max_bytes:
            return TOO_LARGE
        if len(message.topic.encode()) > MAX_ROUTING_KEY:
            return TOO_LONG
        async with self._alone.get(message.id) or nullcontext():
            with telling():
                await channel.basic_publish(
                    message.payload,
                    exchange=options.exchange,
                    routing_key=message.topic,
                    properties=properties(message),
                    mandatory=options.mandatory,
                    wait=position % STEP == 0 or len(message.payload) >= LARGE,
                )
        return SENT
