"""A member of a group: consumers of its queues, and what they brought and was not taken yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from aiormq import exceptions as amqp
from aiormq.abc import DeliveredMessage
from aiormq.channel import Channel
from pamqp.commands import Basic

from postlude.brokers.rabbitmq.faults import LOST
from postlude.brokers.rabbitmq.link import Link, prepared, unavailable
from postlude.brokers.rabbitmq.options import RabbitmqOptions, Target
from postlude.brokers.rabbitmq.waiting import Waiting
from postlude.brokers.rabbitmq.wire import received as received_of
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Received

MAX_PREFETCH = 65_535
LIMIT = "x-delivery-limit"


class Joined:
    """One stretch of membership, until the connection is lost. A new one begins with empty hands: the server delivers
    again whatever was not acknowledged."""

    def __init__(self, link: Link, channel: Channel) -> None:
        self.link = link
        self.channel = channel
        self.waiting = Waiting()
        self.unacknowledged: dict[int, None] = {}
        self.is_cancelled = False

    @property
    def is_alive(self) -> bool:
        return self.link.is_alive and not self.channel.is_closed and not self.is_cancelled

    async def take(self, message: DeliveredMessage) -> None:
        tag = cast("int", cast("Basic.Deliver", message.delivery).delivery_tag)
        self.unacknowledged[tag] = None
        self.waiting.add(received_of(message, (self, tag)))

    def cancelled(self, *_: Any) -> None:
        """By the server, when a queue is deleted or moved."""
        self.is_cancelled = True
        self.waiting.wake()

    def ended(self, *_: Any) -> None:
        self.waiting.wake()


class Member:
    """The order of a key is kept also for what is not acknowledged: it stays here, and what comes after it waits."""

    def __init__(self, target: Target, topics: Sequence[str], group: str, prefetch: int) -> None:
        self._target = target
        self._queues = {queue_name(group, topic): topic for topic in topics}
        # The server counts for each queue.
        self._prefetch = min(MAX_PREFETCH, max(1, prefetch // max(1, len(self._queues))))
        self._joined: Joined | None = None

    async def receive(self, limit: int, timeout: float) -> list[Received]:
        joined = await self.join()
        found = await joined.waiting.next(limit, timeout, lambda: joined.is_alive)
        if not found and not joined.is_alive:
            await self.leave(in_order=False)
            raise BrokerUnavailable(f"RabbitMQ at {self._target.shown} has closed the connection")
        return found

    async def ack(self, received: Sequence[Received]) -> None:
        joined, tags = self._mine(received)
        if joined is None or not tags:
            return
        last = 0
        for tag in joined.unacknowledged:  # in the order of delivery: one ack is enough for all up to the first gap
            if tag not in tags:
                break
            last = tag
        several = [(last, True)] if last else []
        steps = [*several, *((tag, False) for tag in sorted(tags) if tag > last)]
        for tag in tags:
            joined.unacknowledged.pop(tag, None)
        # One that is lost only means a duplicate; the next receive says that the server is gone.
        with suppress(*LOST):
            async with joined.link.in_time(self._target.options.timeout):
                for tag, up_to in steps:
                    await joined.channel.basic_ack(tag, multiple=up_to, wait=tag == steps[-1][0])

    async def nack(self, received: Sequence[Received], delay: float) -> None:
        """They stay here, not acknowledged, and come again from here. If we die, the server gives them to another."""
        joined, tags = self._mine(received)
        if joined is not None:
            mine = [one for one in received if one.place[0] is joined and one.place[1] in tags]
            joined.waiting.put_back(mine, delay)

    def position(self, received: Received) -> str | None:  # noqa: ARG002 - a queue has no places
        return None

    async def lag(self) -> int | None:
        """What waits in the queues, and what we hold. What other members hold is not known here."""
        joined = await self.join()
        try:
            async with joined.link.in_time(self._target.options.timeout):
                channel = await joined.link.channel()
                ready = 0
                for queue in self._queues:
                    said = await channel.queue_declare(queue, passive=True)
                    ready += said.message_count or 0
                joined.link.give_back(channel)
        except LOST as error:
            raise unavailable(self._target, error) from None
        return ready + len(joined.unacknowledged)

    async def join(self) -> Joined:
        """Raises BrokerUnavailable."""
        if self._joined is not None and self._joined.is_alive:
            return self._joined
        await self.leave(in_order=False)
        link = await prepared(self._target)
        try:
            async with link.in_time(self._target.options.timeout):
                self._joined = await self._consuming(link)
        except LOST as error:
            await link.cut()
            raise unavailable(self._target, error) from None
        except BaseException:
            await link.cut()
            raise
        return self._joined

    async def leave(self, *, in_order: bool) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            await (joined.link.close() if in_order else joined.link.cut())

    async def _consuming(self, link: Link) -> Joined:
        options = self._target.options
        channel = await link.channel()
        joined = Joined(link, channel)
        channel.on_consumer_cancel_callbacks.add(joined.cancelled)
        channel.closing.add_done_callback(joined.ended)
        await channel.basic_qos(prefetch_count=self._prefetch)
        if options.declare:
            for queue, topic in self._queues.items():
                await _declare(link, queue, queue_arguments(options, link.version))
                await channel.queue_bind(queue, options.exchange, routing_key=topic)
        for queue in self._queues:
            await channel.basic_consume(queue, joined.take)
        return joined

    def _mine(self, received: Sequence[Received]) -> tuple[Joined | None, set[int]]:
        """Tags of this stretch that are open. What an earlier one brought comes again by itself."""
        joined = self._joined
        if joined is None:
            return None, set()
        tags = {one.place[1] for one in received if one.place[0] is joined}
        return joined, {tag for tag in tags if tag in joined.unacknowledged}


@asynccontextmanager
async def joining(target: Target, topics: Sequence[str], group: str, prefetch: int) -> AsyncIterator[Member]:
    """From here on the queues are there. In an outage `receive` says so, and joins later."""
    member = Member(target, topics, group, prefetch)
    with suppress(BrokerUnavailable):
        await member.join()
    try:
        yield member
    finally:
        await member.leave(in_order=True)


def queue_name(group: str, topic: str) -> str:
    """A queue for each group and topic: members of different releases may take different topics."""
    return f"{group}:{topic}"


def queue_arguments(options: RabbitmqOptions, version: tuple[int, ...]) -> list[dict[str, Any]]:
    """What to declare a queue with; the second where the first is refused."""
    arguments: dict[str, Any] = {}
    if options.queue_type == "quorum" and version >= (3, 8):
        arguments["x-queue-type"] = "quorum"
    if options.single_active and version >= (3, 8):
        arguments["x-single-active-consumer"] = True
    arguments |= options.queue_arguments
    if arguments.get("x-queue-type") != "quorum" or version < (4, 0) or LIMIT in arguments:
        return [arguments]
    # From version 4 on a message is dropped after twenty deliveries unless told otherwise. A queue that is older than
    # its server was made without.
    return [{**arguments, LIMIT: -1}, arguments]


async def _declare(link: Link, queue: str, choices: list[dict[str, Any]]) -> None:
    for arguments in choices:
        channel = await link.channel()
        try:
            await channel.queue_declare(queue, durable=True, arguments=arguments)
        except amqp.ChannelPreconditionFailed:
            if arguments is choices[-1]:
                raise
        else:
            link.give_back(channel)
            return
