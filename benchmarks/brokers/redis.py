"""redis-py: XADD in pipelines of a batch, no transaction around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis.asyncio import Redis

from benchmarks.brokers.client import GROUP, chunks
from benchmarks.measuring.turns import say
from postlude.core.envelope import BrokerMessage
from tools import redis as tool


class RedisClient:
    name = "redis"

    @contextmanager
    def server(self) -> Iterator[str]:
        with tool.RedisServer(tool.available()) as server:
            say(f"redis {server.version} from {server.source} on port {server.port}")
            yield server.url

    def options(self, topic: str) -> Mapping[str, Any]:  # noqa: ARG002
        return {}

    async def make(self, url: str, topic: str) -> None:
        async with _client(url) as client:
            await client.xgroup_create(topic, GROUP, id="0", mkstream=True)

    async def stored(self, url: str, topic: str) -> int:
        async with _client(url) as client:
            return int(await client.xlen(topic))

    async def unread(self, url: str, topic: str) -> int:
        async with _client(url) as client:
            (group,) = await client.xinfo_groups(topic)
        return int(group["lag"]) + int(group["pending"])

    async def remove(self, url: str, topic: str) -> None:
        async with _client(url) as client:
            await client.delete(topic)

    def ready(self, messages: Sequence[BrokerMessage]) -> Sequence[Any]:
        return [_fields(message) for message in messages]

    async def publish(self, url: str, topic: str, ready: Sequence[Any], batch: int) -> None:
        async with _client(url) as client:
            for chunk in chunks(ready, batch):
                pipeline = client.pipeline(transaction=False)
                for fields in chunk:
                    pipeline.xadd(topic, fields)
                await pipeline.execute()

    async def consume(self, url: str, topic: str, count: int, batch: int) -> list[bytes]:
        payloads: list[bytes] = []
        async with _client(url) as client:
            while len(payloads) < count:
                ((_, entries),) = await client.xreadgroup(GROUP, "raw", {topic: ">"}, count=batch, block=1000)
                payloads += [fields[b"_data"] for _, fields in entries]
                await client.xack(topic, GROUP, *(entry for entry, _ in entries))
        return payloads


def _fields(message: BrokerMessage) -> dict[Any, Any]:
    """As our adapter writes them."""
    key = {} if message.key is None else {"_key": message.key}
    return {"_id": str(message.id), "_data": message.payload, **key, **message.headers}


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[Any]:
    async with Redis.from_url(url, protocol=2) as client:
        yield client
