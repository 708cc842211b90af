"""aiokafka, idempotent and with acks=all. The client batches: everything is given to it at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.brokers.client import GROUP
from benchmarks.measuring.turns import say
from postlude.brokers.kafka.broker import DEFAULTS
from postlude.core.envelope import BrokerMessage
from tools import kafka as tool

PARTITIONS = 4

# Topics and groups that are new, as all are here, surprise it.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class KafkaClient:
    name = "kafka"

    @contextmanager
    def server(self) -> Iterator[str]:
        with tool.KafkaServer(tool.available()) as server:
            say(f"{server.name} on port {server.port}")
            yield server.url

    def options(self, topic: str) -> Mapping[str, Any]:  # noqa: ARG002
        return {}

    async def make(self, url: str, topic: str) -> None:
        async with _admin(url) as admin:
            await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        await self.stored(
            url, topic
        )  # asks until every partition has a leader; a producer would be refused for a while

    async def stored(self, url: str, topic: str) -> int:
        async with _consumer(url) as consumer:
            ends = await consumer.end_offsets(_partitions(topic))
        return int(sum(ends.values()))

    async def unread(self, url: str, topic: str) -> int:
        async with _admin(url) as admin:
            committed = await admin.list_consumer_group_offsets(GROUP)
        done = sum(max(place.offset, 0) for partition, place in committed.items() if partition.topic == topic)
        return await self.stored(url, topic) - int(done)

    async def remove(self, url: str, topic: str) -> None:
        async with _admin(url) as admin:
            await admin.delete_topics([topic])

    def ready(self, messages: Sequence[BrokerMessage]) -> Sequence[Any]:
        return [
            (
                message.key.encode() if message.key is not None else None,
                message.payload,
                [(name, value.encode()) for name, value in message.headers.items()],
            )
            for message in messages
        ]

    async def publish(self, url: str, topic: str, ready: Sequence[Any], batch: int) -> None:  # noqa: ARG002
        # Batches of the same size as our adapter's: the client's own are far too small for speed.
        producer = AIOKafkaProducer(
            bootstrap_servers=_address(url),
            enable_idempotence=True,
            acks="all",
            max_batch_size=DEFAULTS["max_batch_size"],
        )
        async with producer:
            confirmations = [
                await producer.send(topic, payload, key=key, headers=headers) for key, payload, headers in ready
            ]
            await asyncio.gather(*confirmations)

    async def consume(self, url: str, topic: str, count: int, batch: int) -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=_address(url),
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        payloads: list[bytes] = []
        async with consumer:
            while len(payloads) < count:
                found = await consumer.getmany(timeout_ms=1000, max_records=batch)
                payloads += [record.value for records in found.values() for record in records]
                if found:
                    await consumer.commit()
        return payloads


def _address(url: str) -> str:
    return url.removeprefix("kafka://")


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


@asynccontextmanager
async def _admin(url: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=_address(url))
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def _consumer(url: str) -> AsyncIterator[Any]:
    async with AIOKafkaConsumer(bootstrap_servers=_address(url)) as consumer:
        yield consumer
