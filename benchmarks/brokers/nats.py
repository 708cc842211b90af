"""nats-py: JetStream's `publish_async`, a batch of confirmations outstanding, each message under its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from benchmarks.brokers.client import GROUP
from benchmarks.measuring.turns import say
from postlude.brokers.nats.options import Own
from postlude.brokers.nats.wire import headers_of
from postlude.core.envelope import BrokerMessage
from tools import nats as tool


class NatsClient:
    name = "nats"

    @contextmanager
    def server(self) -> Iterator[str]:
        with tool.NatsServer(tool.available()) as server:
            say(f"nats {server.version} on port {server.port}")
            yield server.url

    def options(self, topic: str) -> Mapping[str, Any]:
        """A stream of its own for each turn: another one's would know the message ids again."""
        return {"stream": _stream(topic)}

    async def make(self, url: str, topic: str) -> None:
        own = Own()
        config = StreamConfig(
            name=_stream(topic), subjects=[topic], storage=StorageType.FILE, duplicate_window=own.duplicate_window
        )
        async with _jetstream(url) as jetstream:
            await jetstream.add_stream(config)

    async def stored(self, url: str, topic: str) -> int:
        async with _jetstream(url) as jetstream:
            return int((await jetstream.stream_info(_stream(topic))).state.messages)

    async def unread(self, url: str, topic: str) -> int:
        async with _jetstream(url) as jetstream:
            info = await jetstream.consumer_info(_stream(topic), GROUP)
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def remove(self, url: str, topic: str) -> None:
        async with _jetstream(url) as jetstream:
            await jetstream.delete_stream(_stream(topic))

    def ready(self, messages: Sequence[BrokerMessage]) -> Sequence[Any]:
        return [(message.payload, headers_of(message)) for message in messages]

    async def publish(self, url: str, topic: str, ready: Sequence[Any], batch: int) -> None:
        async with _jetstream(url, batch) as jetstream:
            confirmations = [
                await jetstream.publish_async(topic, payload, headers=headers) for payload, headers in ready
            ]
            await asyncio.gather(*confirmations)

    async def consume(self, url: str, topic: str, count: int, batch: int) -> list[bytes]:
        own = Own()
        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, ack_wait=own.ack_wait, max_ack_pending=own.max_ack_pending
        )
        payloads: list[bytes] = []
        async with _jetstream(url) as jetstream:
            pulls = await jetstream.pull_subscribe(topic, durable=GROUP, stream=_stream(topic), config=config)
            while len(payloads) < count:
                messages = await pulls.fetch(min(batch, count - len(payloads)), timeout=5)
                payloads += [message.data for message in messages]
                for message in messages:
                    await message.ack()
        return payloads


def _stream(topic: str) -> str:
    return topic.replace(".", "-")


@asynccontextmanager
async def _jetstream(url: str, pending: int = 1) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(url)
    try:
        yield client.jetstream(publish_async_max_pending=pending)
        await client.flush()
    finally:
        await client.close()
