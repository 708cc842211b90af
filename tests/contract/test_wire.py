"""What is on the wire is CloudEvents to others, and theirs is to us: checked with the official SDK, on real servers.

The SDK has bindings for Kafka and AMQP. NATS uses the names and the encoding of HTTP, so the SDK's binding for HTTP reads
its headers. Redis has no binding: our fields have the names of Kafka's headers, so that one reads them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID, uuid4

import aio_pika
import msgspec
import nats
import pytest
import redis.asyncio as redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from cloudevents.core.bindings import amqp, http, kafka, rabbitmq
from cloudevents.core.v1.event import CloudEvent

from postlude import Event, Postlude, Settings, event
from postlude.brokers.kafka import KafkaBroker
from postlude.brokers.nats import NatsBroker
from postlude.brokers.rabbitmq import RabbitmqBroker
from postlude.brokers.redis import RedisBroker
from postlude.core.identity import identity
from postlude.core.incoming import Incoming, read_message
from postlude.testing.contracts.broker_arrange import joined
from tests.contract import test_kafka_broker, test_nats_broker
from tests.engine import until

PATIENCE = 60.0
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CAUSE = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
MODES = pytest.mark.parametrize("mode", ["binary", "structured"])
STRUCTURED = "application/cloudevents+json"

kafka_server = test_kafka_broker.kafka_server
nats_server = test_nats_broker.nats_server


@event(type="wire.noted", version=3, key="key", entity="note")
class Noted(Event):
    """Something that is hard to carry."""

    key: str
    text: str


NOTED = Noted(key='gr\u00fcn "1" 100%', text="\u2602 \n")
FOREIGN: dict[str, Any] = {
    "id": "n-1",
    "source": "/other/\u00fc 100%",
    "type": "com.example.sent",
    "time": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
    "subject": 'gr\u00fcn "1"',
    "dataversion": "2",
    "correlationid": "c 2",
    "causationid": str(CAUSE),
    "partitionkey": "k 1",
    "traceparent": TRACE,
    "tenant": "acme",
}


class Seen(SimpleNamespace):
    """A message as a plain client has it: what the SDK reads of it, its headers as text, its key and its id.
    Kafka knows no ids of messages: there it is the event's."""

    event: CloudEvent
    headers: dict[str, str]
    key: str
    message_id: str


class WireContract:
    """A subclass gives `url`, `look` and `put`, which use the plain client and the SDK only."""

    broker: ClassVar[type[Any]]
    options: ClassVar[dict[str, Any]] = {}
    prefix: ClassVar[str] = "ce_"

    async def declare(self, url: str, topic: str) -> None:
        """Whatever must be there before an app relays to a topic."""

    async def look(self, url: str, topic: str) -> Seen:
        """The only message of a topic."""
        raise NotImplementedError

    async def put(self, url: str, topic: str, sent: CloudEvent, mode: str) -> None:
        raise NotImplementedError

    @pytest.fixture
    def topic(self) -> str:
        return f"wire-{uuid4().hex[:12]}"

    @MODES
    async def test_the_sdk_reads_what_an_app_relays(self, url, sqlite_url, topic, mode):
        await self.declare(url, topic)
        event_id = await self.relay(url, sqlite_url, topic, mode)
        seen = await self.look(url, topic)
        assert (
            seen.event.get_attributes().items()
            >= {
                "specversion": "1.0",
                "id": str(event_id),
                "type": "wire.noted",
                "source": "/shop \u00fc",
                "subject": f"note/{NOTED.key}",
                "datacontenttype": "application/json",
                "dataversion": "3",
                "partitionkey": NOTED.key,
                "correlationid": "c \u00fc 1",
                "causationid": str(CAUSE),
            }.items()
        )
        sent_at = seen.event.get_time()
        assert sent_at is not None
        assert abs((datetime.now(UTC) - sent_at).total_seconds()) < 3600
        assert seen.event.get_data() == msgspec.to_builtins(NOTED)
        assert (seen.key, seen.message_id) == (NOTED.key, str(event_id))
        assert seen.headers["traceparent"] == TRACE
        assert seen.headers["tenant"] == "acme"
        attributes = [name for name in seen.headers if name.startswith(("ce", "cloud"))]
        if mode == "structured":
            assert (attributes, seen.headers["content-type"]) == ([], STRUCTURED)
            assert seen.event.get_extension("traceparent") == TRACE
        else:
            assert {name.removeprefix(self.prefix) for name in attributes} == {
                *("specversion", "id", "type", "source", "time", "subject"),
                *("dataversion", "partitionkey", "correlationid", "causationid"),
            }

    @MODES
    async def test_we_read_what_we_wrote(self, url, sqlite_url, topic, mode):
        async with self.subscribed(url, topic) as receive:
            event_id = await self.relay(url, sqlite_url, topic, mode)
            (found,) = await receive(1)
        assert abs((datetime.now(UTC) - found.sent_at).total_seconds()) < 3600
        assert msgspec.structs.replace(found, sent_at=None) == Incoming(
            event_id=event_id,
            type="wire.noted",
            version=3,
            source="/shop \u00fc",
            entity=f"note/{NOTED.key}",
            key=NOTED.key,
            content_type="application/json",
            payload=msgspec.json.encode(NOTED),
            headers={"tenant": "acme", "traceparent": TRACE},
            correlation_id="c \u00fc 1",
            causation_id=CAUSE,
            sent_at=None,
        )

    @MODES
    async def test_we_read_what_the_sdk_writes(self, url, topic, mode):
        async with self.subscribed(url, topic) as receive:
            await self.put(url, topic, CloudEvent(FOREIGN | {"datacontenttype": "application/json"}, {"n": 1}), mode)
            bare = {"id": str(CAUSE), "source": "/other", "type": "bare", "datacontenttype": "application/avro"}
            await self.put(url, topic, CloudEvent(bare, b"\xff\0"), mode)
            found = {one.type: one for one in await receive(2)}
        assert found["com.example.sent"] == Incoming(
            event_id=identity("n-1", FOREIGN["source"]),
            type="com.example.sent",
            version=2,
            source=FOREIGN["source"],
            entity=FOREIGN["subject"],
            key="k 1",
            content_type="application/json",
            payload=b'{"n": 1}',
            headers={"traceparent": TRACE, "ce_tenant": "acme"},
            correlation_id="c 2",
            causation_id=CAUSE,
            sent_at=FOREIGN["time"],
        )
        plain = found["bare"]
        assert (plain.event_id, plain.version, plain.key, plain.correlation_id) == (CAUSE, 1, None, None)
        assert (plain.content_type, plain.payload, plain.headers) == ("application/avro", b"\xff\0", {})

    async def relay(self, url: str, database: str, topic: str, mode: str) -> UUID:
        told = {"default": {"url": url, "mode": mode, "options": self.options}}
        app = Postlude(database, settings=Settings.load(environ={}, source="/shop \u00fc", brokers=told))
        app.route(Noted)
        try:
            async with app.transaction() as tx:
                headers = {"tenant": "acme", "traceparent": TRACE}
                given: dict[str, Any] = {
                    "topic": topic,
                    "correlation_id": "c \u00fc 1",
                    "causation_id": CAUSE,
                    "headers": headers,
                }
                event_id = await app.outbox.append(tx, NOTED, **given)
            assert await app.drain() == 1
        finally:
            await app.close()
        return event_id

    @asynccontextmanager
    async def subscribed(self, url: str, topic: str):
        """A group that is there before the first message; gives a function that waits for so many of them."""
        broker = self.broker(url, self.options)
        await self.declare(url, topic)
        try:
            async with joined(broker, topic, f"group-{topic}") as member:

                async def receive(count: int) -> list[Incoming]:
                    come: list[Any] = []
                    deadline = time.monotonic() + PATIENCE
                    while len(come) < count:
                        assert time.monotonic() < deadline, come
                        come += await member.receive(count, 0.5)
                    await member.ack(come)
                    return [read_message(one.key, one.payload, one.headers) for one in come]

                yield receive
        finally:
            await broker.close()


async def test_every_broker_has_a_mode_of_its_own(sqlite_url):
    brokers = {"default": {"mode": "structured"}, "audit": "memory://"}
    app = Postlude(sqlite_url, settings=Settings.load(environ={}, broker="memory://", brokers=brokers))
    app.route(Noted)
    app.route(Noted, to="audit")
    async with app.transaction() as tx:
        await app.outbox.append(tx, NOTED)
    await app.drain()
    (whole,), (parts,) = app.broker().messages(), app.broker("audit").messages()
    await app.close()
    assert (whole.headers["content-type"], parts.headers["content-type"]) == (STRUCTURED, "application/json")
    first, second = (read_message(one.key, one.payload, one.headers) for one in (whole, parts))
    assert first == second


def _texts(headers: Mapping[str, bytes]) -> dict[str, str]:
    return {name: value.decode() for name, value in headers.items()}


class TestKafka(WireContract):
    broker = KafkaBroker
    options: ClassVar[dict[str, Any]] = {"timeout": 10, **test_kafka_broker.GROUPS}

    @pytest.fixture
    def url(self, request, kafka_server):
        request.node.user_properties.append(("server", kafka_server.name))
        return kafka_server.url

    async def declare(self, url, topic):
        """Asking for a topic makes it."""
        async with self.producer(url) as producer:
            assert await producer.partitions_for(topic)

    async def look(self, url, topic):
        place = url.removeprefix("kafka://")
        async with AIOKafkaConsumer(topic, bootstrap_servers=place, auto_offset_reset="earliest") as consumer:
            one = await asyncio.wait_for(consumer.getone(), PATIENCE)
        headers = dict(one.headers)
        read = kafka.from_kafka_event(kafka.KafkaMessage(headers=headers, key=one.key, value=one.value))
        return Seen(event=read, headers=_texts(headers), key=one.key.decode(), message_id=read.get_id())

    async def put(self, url, topic, sent, mode):
        made = kafka.to_binary_event(sent) if mode == "binary" else kafka.to_structured_event(sent)
        key = made.key.encode() if isinstance(made.key, str) else made.key
        async with self.producer(url) as producer:
            await producer.send_and_wait(topic, made.value, key=key, headers=list(made.headers.items()))

    def producer(self, url):
        return AIOKafkaProducer(bootstrap_servers=url.removeprefix("kafka://"))


class TestRabbitmq(WireContract):
    broker = RabbitmqBroker
    prefix = "cloudEvents:"

    @pytest.fixture
    def url(self, rabbitmq_url):
        return rabbitmq_url

    async def declare(self, url, topic):
        async with self.channel(url) as channel:
            exchange = await channel.declare_exchange("postlude", "topic", durable=True)
            queue = await channel.declare_queue(f"look-{topic}", arguments={"x-expires": 600_000})
            await queue.bind(exchange, topic)

    async def look(self, url, topic):
        async with self.channel(url) as channel:
            queue = await channel.get_queue(f"look-{topic}")
            found: list[Any] = []

            async def has_come() -> bool:
                found.append(await queue.get(fail=False, no_ack=True))
                return found[-1] is not None

            await until(has_come, PATIENCE)
            one = found[-1]
        read = amqp.from_amqp_event(amqp.AMQPMessage({"content-type": one.content_type}, dict(one.headers), one.body))
        headers = {**one.headers, "content-type": one.content_type}
        return Seen(event=read, headers=headers, key=headers["postlude-key"], message_id=one.message_id)

    async def put(self, url, topic, sent, mode):
        made = amqp.to_binary_event(sent) if mode == "binary" else amqp.to_structured_event(sent)
        await self.send(url, topic, made.application_data, made.properties["content-type"], made.application_properties)

    async def send(self, url, topic, body, content_type, headers):
        async with self.channel(url) as channel:
            exchange = await channel.get_exchange("postlude")
            await exchange.publish(aio_pika.Message(body, headers=headers, content_type=content_type), topic)

    @asynccontextmanager
    async def channel(self, url):
        async with await aio_pika.connect(url) as connection:
            yield await connection.channel()

    @MODES
    async def test_the_names_of_knative_are_read_too(self, url, topic, mode):
        """The SDK's binding for RabbitMQ is that one."""
        async with self.subscribed(url, topic) as receive:
            sent = CloudEvent(FOREIGN | {"datacontenttype": "application/json"}, {"n": 1})
            made = rabbitmq.to_binary_event(sent) if mode == "binary" else rabbitmq.to_structured_event(sent)
            await self.send(url, topic, made.body, made.content_type, made.headers)
            (found,) = await receive(1)
        assert (found.event_id, found.sent_at) == (identity("n-1", FOREIGN["source"]), FOREIGN["time"])
        assert (found.key, found.entity, found.headers) == (
            "k 1",
            FOREIGN["subject"],
            {"traceparent": TRACE, "ce_tenant": "acme"},
        )

    @pytest.mark.parametrize("moment", [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), 1_767_323_045_000])
    async def test_a_time_of_amqp_s_own_is_read(self, url, topic, moment):
        headers = {
            "cloudEvents:id": "1",
            "cloudEvents:source": "/s",
            "cloudEvents:type": "t",
            "cloudEvents:time": moment,
        }
        async with self.subscribed(url, topic) as receive:
            await self.send(url, topic, b"", "text/plain", headers | {"cloudEvents:specversion": "1.0"})
            (found,) = await receive(1)
        assert found.sent_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class TestRedis(WireContract):
    broker = RedisBroker

    @pytest.fixture
    def url(self, redis_server):
        return redis_server.url

    async def look(self, url, topic):
        async with redis.Redis.from_url(url) as client:
            found: Any = await client.xrange(topic)
        ((_, fields),) = found
        own = {name.decode(): value for name, value in fields.items() if not name.startswith(b"_")}
        read = kafka.from_kafka_event(kafka.KafkaMessage(headers=own, key=fields[b"_key"], value=fields[b"_data"]))
        message_id = fields[b"_id"].decode()
        return Seen(event=read, headers=_texts(own), key=fields[b"_key"].decode(), message_id=message_id)

    async def put(self, url, topic, sent, mode):
        made = kafka.to_binary_event(sent) if mode == "binary" else kafka.to_structured_event(sent)
        async with redis.Redis.from_url(url) as client:
            fields: dict[Any, Any] = {**made.headers, "data": made.value}
            await client.xadd(topic, fields)


class TestNats(WireContract):
    broker = NatsBroker
    options: ClassVar[dict[str, Any]] = {"timeout": 10, "stream": "wire", "subjects": ["*"]}
    prefix = "ce-"

    @pytest.fixture
    def url(self, request, nats_server):
        request.node.user_properties.append(("server", f"nats {nats_server.version}"))
        return nats_server.url

    async def look(self, url, topic):
        async with self.client(url) as client:
            one = await client.jetstream().get_last_msg("wire", topic)
        read = http.from_http_event(http.HTTPMessage(headers=one.headers, body=one.data))
        key = read.get_extension("partitionkey")
        return Seen(event=read, headers=one.headers, key=key, message_id=one.headers["Nats-Msg-Id"])

    async def put(self, url, topic, sent, mode):
        made = http.to_binary_event(sent) if mode == "binary" else http.to_structured_event(sent)
        async with self.client(url) as client:
            await client.jetstream().publish(topic, made.body, headers=dict(made.headers))

    async def test_a_message_without_headers_is_read(self, url, topic):
        """As the binding for NATS had it before NATS had headers."""
        async with self.subscribed(url, topic) as receive, self.client(url) as client:
            made = http.to_structured_event(CloudEvent(dict(FOREIGN), {"n": 1}))
            await client.jetstream().publish(topic, made.body)
            (found,) = await receive(1)
        assert (found.event_id, found.payload) == (identity("n-1", FOREIGN["source"]), b'{"n": 1}')

    @asynccontextmanager
    async def client(self, url):
        client = await nats.connect(url)
        try:
            yield client
        finally:
            await client.close()
