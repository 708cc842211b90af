"""aio-pika with publisher confirms: persistent, mandatory messages to a quorum queue, a batch under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from benchmarks.brokers.client import GROUP, chunks
from benchmarks.measuring.turns import say
from postlude.brokers.rabbitmq.member import queue_name
from postlude.brokers.rabbitmq.options import RabbitmqOptions
from postlude.brokers.rabbitmq.wire import properties
from postlude.core.envelope import BrokerMessage
from tools import rabbitmq as tool

EXCHANGE = RabbitmqOptions().exchange
ARGUMENTS: dict[str, Any] = {"x-queue-type": "quorum", "x-single-active-consumer": True}
"""As our adapter makes its queues."""


class RabbitmqClient:
    name = "rabbitmq"

    @contextmanager
    def server(self) -> Iterator[str]:
        with tool.RabbitmqServer(tool.available()) as server:
            say(f"rabbitmq {server.version} from {server.source} on port {server.port}")
            yield server.url

    def options(self, topic: str) -> Mapping[str, Any]:  # noqa: ARG002
        return {}

    async def make(self, url: str, topic: str) -> None:
        async with _channel(url) as channel:
            exchange = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
            queue = await channel.declare_queue(queue_name(GROUP, topic), durable=True, arguments=ARGUMENTS)
            await queue.bind(exchange, topic)

    async def stored(self, url: str, topic: str) -> int:
        async with _channel(url) as channel:
            queue = await channel.declare_queue(queue_name(GROUP, topic), passive=True)
        return queue.declaration_result.message_count or 0

    unread = stored

    async def remove(self, url: str, topic: str) -> None:
        async with _channel(url) as channel:
            await channel.queue_delete(queue_name(GROUP, topic))

    def ready(self, messages: Sequence[BrokerMessage]) -> Sequence[Any]:
        return [(message.payload, _properties(message)) for message in messages]

    async def publish(self, url: str, topic: str, ready: Sequence[Any], batch: int) -> None:
        async with _channel(url) as channel:
            exchange = await channel.get_exchange(EXCHANGE, ensure=False)
            for chunk in chunks(ready, batch):
                messages = [aio_pika.Message(payload, **known) for payload, known in chunk]
                await asyncio.gather(*(exchange.publish(message, topic, mandatory=True) for message in messages))

    async def consume(self, url: str, topic: str, count: int, batch: int) -> list[bytes]:
        payloads: list[bytes] = []
        done = asyncio.get_running_loop().create_future()

        async def take(message: AbstractIncomingMessage) -> None:
            """One ack for all of a batch, and for those that are left at the end."""
            payloads.append(message.body)
            if len(payloads) % batch == 0 or len(payloads) == count:
                await message.ack(multiple=True)
            if len(payloads) == count:
                done.set_result(None)

        async with _channel(url) as channel:
            # Twice the batch: the next one is on its way while this one is acknowledged.
            await channel.set_qos(prefetch_count=2 * batch)
            queue = await channel.get_queue(queue_name(GROUP, topic), ensure=False)
            await queue.consume(take)
            await done
        return payloads


def _properties(message: BrokerMessage) -> dict[str, Any]:
    ours = properties(message)
    return {
        "app_id": ours.app_id,
        "content_type": ours.content_type,
        "correlation_id": ours.correlation_id,
        "delivery_mode": aio_pika.DeliveryMode.PERSISTENT,
        "headers": ours.headers,
        "message_id": ours.message_id,
        "type": ours.message_type,
    }


@asynccontextmanager
async def _channel(url: str) -> AsyncIterator[AbstractChannel]:
    connection = await aio_pika.connect(url)
    async with connection:
        yield await connection.channel(publisher_confirms=True)
