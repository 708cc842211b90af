"""RabbitMQ passes the broker contract: quorum queues on the server of all tests, faults on one of its own."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
import subprocess
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlsplit
from uuid import uuid4

import aiormq
import pytest
from aiormq import exceptions as amqp
from msgspec import structs
from pamqp.commands import Basic

from postlude.brokers.rabbitmq import RabbitmqBroker
from postlude.brokers.rabbitmq.faults import ERRORS, TABLE, blames_one, failure, row_of
from postlude.brokers.rabbitmq.member import LIMIT, queue_arguments, queue_name
from postlude.brokers.rabbitmq.options import RabbitmqOptions
from postlude.core.outcome import HELD, SENT, Failed, Rejected, Unavailable
from postlude.errors import BadUrl, BrokerUnavailable, SettingsError
from postlude.ports.broker import BrokerFeatures
from postlude.testing.contracts.broker import BrokerContract
from postlude.testing.contracts.broker_arrange import (
    Ability,
    attempt,
    ids,
    joined,
    message,
    numbered,
    received,
    sent,
    sent_in_the_end,
    within,
)
from postlude.testing.contracts.broker_faults import BrokerFaults
from postlude.testing.contracts.broker_receiving import BrokerReceiving
from tools.places import free_port
from tools.rabbitmq import MAX_MESSAGE_BYTES

LARGEST = 200_000


@asynccontextmanager
async def channel_of(url):
    """As another program would have it."""
    connection = await aiormq.connect(url)
    try:
        yield await connection.channel()
    finally:
        await connection.close()


class OnRabbitmq:
    keeps_history = False
    has_dead_end = True
    has_foreign = True
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def broker_server(self, rabbitmq_url):
        return SimpleNamespace(url=rabbitmq_url)

    @pytest.fixture
    def make_broker(self, broker_server):
        return lambda **options: RabbitmqBroker(broker_server.url, self.options | options)

    async def declare(self, broker, topic, *groups):
        for group in groups:
            async with joined(broker, topic, group):
                pass

    async def dead_end(self, broker):
        return f"nowhere-{uuid4()}"

    async def put_foreign(self, server, topic, payload):
        async with channel_of(server.url) as channel:
            await channel.basic_publish(payload, exchange="postlude", routing_key=topic)


class TestRabbitmq(OnRabbitmq, BrokerContract):
    features = BrokerFeatures(ordered_failure=True, max_bytes=LARGEST)
    abilities: ClassVar[frozenset[Ability]] = frozenset({"process"})
    too_large = LARGEST + 1
    options: ClassVar[dict[str, Any]] = {"max_bytes": LARGEST}
    # One receives, which keeps the order of keys: see the next test, and TestCompeting.
    test_members_share_what_comes = None  # type: ignore[assignment]

    async def test_one_member_receives_and_another_takes_over(self, broker, connect, topic, group):
        await self.declare(broker, topic, group)
        second = await connect()
        async with joined(second, topic, group) as standing_by:
            batch = numbered(topic, 10, key="k")
            async with joined(broker, topic, group) as member:
                await sent(broker, batch)
                come = await received(standing_by, 10, self.patience)
                assert await member.receive(10, 0.1) == []
                await standing_by.ack(come[:3])
                await standing_by._joined.link.cut()  # type: ignore[attr-defined]
                again = await received(member, 7, self.patience, ack=True)
        assert ids(again) == ids(batch[3:])

    async def test_what_nobody_is_bound_for_says_so(self, broker, topic):
        (outcome,) = await broker.publish([message(topic)])
        assert isinstance(outcome, Rejected)
        assert str(outcome.fault) == (f"Unroutable (rabbitmq.unroutable) at exchange postlude, routing key {topic}")

    async def test_two_of_one_id_have_their_own_outcomes(self, broker, topic, group):
        await self.declare(broker, topic, group)
        one = message("nowhere")
        batch = [one, structs.replace(one, topic=topic), structs.replace(one, key="k")]
        outcomes = await broker.publish(batch)
        assert [type(outcome) for outcome in outcomes] == [Rejected, type(SENT), Rejected]

    async def test_unroutable_is_confirmed_where_nobody_minds(self, connect, topic):
        await sent(await connect(mandatory=False), [message(topic)])

    async def test_a_full_queue_fails_its_message_and_holds_the_key(self, connect, topic, group):
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        broker = await connect(queue_type="classic", queue_arguments=full)
        await self.declare(broker, topic, group)
        outcomes = await broker.publish(numbered(topic, 4, key="k"))
        assert outcomes[0] == SENT
        assert isinstance(outcomes[1], Failed)
        assert outcomes[1].fault.code == "rabbitmq.nacked"
        assert outcomes[2:] == [HELD, HELD]

    async def test_what_cannot_be_written_is_rejected(self, broker, topic, group):
        await self.declare(broker, topic, group)
        odd = message(topic, headers={"content-type": "x" * 300})
        outcomes = await broker.publish([message("x" * 256), message("ü" * 200), message("\ud800"), odd])
        assert [type(outcome) for outcome in outcomes] == [Rejected, Rejected, Rejected, type(SENT)]
        async with joined(broker, topic, group) as member:
            (come,) = await received(member, 1, self.patience, ack=True)
        assert come.headers == odd.headers

    async def test_a_missing_exchange_is_nobodys_fault(self, broker, connect, topic, group):
        name = f"exchange-{uuid4()}"
        late = await connect(exchange=name, declare=False)
        (outcome,) = await late.publish([message(topic)])
        assert isinstance(outcome, Unavailable)
        assert outcome.fault.code == "rabbitmq.exchange_missing"
        await self.declare(await connect(exchange=name), topic, group)
        await sent(late, [message(topic)])

    async def test_an_exchange_of_another_kind_says_what_to_do(self, connect, topic):
        broker = await connect(exchange="amq.direct")
        with pytest.raises(BrokerUnavailable, match="declare"):
            await broker.publish([message(topic)])

    async def test_queues_that_somebody_else_has_made(self, connect, topic, group):
        await self.declare(await connect(queue_type="classic"), topic, group)
        async with joined(await connect(), topic, group) as refused:
            with pytest.raises(BrokerUnavailable, match="x-queue-type"):
                await refused.receive(1, 0)
        broker = await connect(declare=False)
        async with joined(broker, topic, group) as member:
            await sent(broker, [message(topic)])
            assert len(await received(member, 1, self.patience, ack=True)) == 1

    async def test_a_wrong_login_is_told_without_its_password(self, rabbitmq_url, topic):
        host = rabbitmq_url.rpartition("@")[2]
        broker = RabbitmqBroker(f"amqp://guest:s3cret@{host}")
        with pytest.raises(BrokerUnavailable) as refused:
            await broker.publish([message(topic)])
        assert "user and the password" in str(refused.value)
        assert "s3cret" not in f"{refused.value!r} {refused.value} {broker!r}"

    async def test_a_missing_vhost_is_told(self, rabbitmq_url, topic):
        broker = RabbitmqBroker(rabbitmq_url.rstrip("/") + "/nothing-here")
        with pytest.raises(BrokerUnavailable, match="vhost"):
            await broker.publish([message(topic)])

    async def test_a_nack_holds_its_key_and_no_other(self, broker, topic, group):
        await self.declare(broker, topic, group)
        await sent(broker, [message(topic, "a", b"1"), message(topic, "b", b"2")])
        await sent(broker, [message(topic, "a", b"3"), message(topic, None, b"4")])
        async with joined(broker, topic, group) as member:
            come = await received(member, 4, self.patience)
            await member.nack([one for one in come if one.payload in b"1 3"], 3600)
            await member.nack([one for one in come if one.payload in b"2 4"], 0)
            assert [one.payload for one in await member.receive(10, 0)] == [b"2", b"4"]
            assert await member.lag() == 4
        async with joined(broker, topic, group) as member:
            again = await received(member, 4, self.patience, ack=True)
        assert [one.payload for one in again if one.key == "a"] == [b"1", b"3"]

    async def test_a_queue_that_is_deleted_is_made_again(self, broker_server, broker, topic, group):
        async with joined(broker, topic, group) as member:
            async with channel_of(broker_server.url) as channel:
                await channel.queue_delete(queue_name(group, topic))
            with pytest.raises(BrokerUnavailable):
                await member.receive(10, self.patience)
            assert await member.receive(10, 0) == []
            await sent(broker, [last := message(topic)])
            assert ids(await received(member, 1, self.patience, ack=True)) == [str(last.id)]

    async def test_headers_of_others_become_text(self, broker_server, broker, topic, group):
        await self.declare(broker, topic, group)
        headers: dict[str, Any] = {
            "number": 7,
            "yes": True,
            "bytes": bytearray(b"\xff"),
            "list": [1, "a"],
            "ce_partitionkey": "k",
        }
        told = Basic.Properties(headers=headers, message_id="m-1", correlation_id="c-1", content_type="text/plain")
        async with channel_of(broker_server.url) as channel:
            await channel.basic_publish(b"", exchange="postlude", routing_key=topic, properties=told)
        async with joined(broker, topic, group) as member:
            (come,) = await member.receive(1, self.patience)
        assert come.key == "k"
        assert come.headers == {
            "number": "7",
            "yes": "true",
            "bytes": "\ufffd",
            "list": '[1,"a"]',
            "ce_partitionkey": "k",
            "message_id": "m-1",
            "correlation_id": "c-1",
            "content-type": "text/plain",
        }

    async def test_it_is_persistent_and_carries_its_id(self, broker_server, connect, topic, group):
        broker = await connect(queue_type="classic", single_active=False)  # others let nobody look
        await self.declare(broker, topic, group)
        one = message(topic, "k", headers={"ce_correlationid": "c-1", "ce_type": "order.placed"})
        await sent(broker, [one])
        async with channel_of(broker_server.url) as channel:
            got = await channel.basic_get(queue_name(group, topic))
        found = got.header.properties
        assert (found.delivery_mode, found.message_id, found.correlation_id) == (2, str(one.id), "c-1")
        assert (found.content_type, found.message_type) == ("application/json", "order.placed")

    async def test_joining_in_an_outage(self, rabbitmq_url, broker, topic, group):
        port = free_port()
        late = RabbitmqBroker(f"amqp://guest:guest@127.0.0.1:{port}/")
        async with joined(late, topic, group) as member:
            with pytest.raises(BrokerUnavailable):
                await member.receive(10, 0)
            with pytest.raises(BrokerUnavailable):
                await member.lag()
            async with passed_on(rabbitmq_url, port=port):
                assert await member.receive(10, 0) == []
                await sent(broker, [last := message(topic)])
                assert ids(await received(member, 1, self.patience)) == [str(last.id)]

    @pytest.fixture
    def certificate(self, tmp_path):
        make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
        alternative = ["-addext", "subjectAltName=DNS:localhost"]
        subprocess.run([*make.split(), *alternative], cwd=tmp_path, check=True, capture_output=True)
        return tmp_path / "cert.pem"

    async def test_tls(self, rabbitmq_url, certificate, topic):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        async with passed_on(rabbitmq_url, context=context) as port:
            trusting = RabbitmqBroker(f"amqps://guest:guest@localhost:{port}/?cafile={certificate}")
            (outcome,) = await trusting.publish([message(topic)])
            assert isinstance(outcome, Rejected)  # it came there: nobody is bound for it
            await trusting.close()
            with pytest.raises(BrokerUnavailable, match="certificate"):
                await RabbitmqBroker(f"amqps://guest:guest@localhost:{port}/").publish([message(topic)])


class TestCompeting(OnRabbitmq, BrokerReceiving):
    """Classic queues whose members share, which keeps no order."""

    features = BrokerFeatures(ordered_by_key=False, ordered_failure=True)
    options: ClassVar[dict[str, Any]] = {"queue_type": "classic", "single_active": False}


class TestRabbitmqFaults(OnRabbitmq, BrokerFaults):
    """Classic queues: a quorum queue that was just declared has no leader after a kill."""

    features = BrokerFeatures(ordered_failure=True)
    abilities: ClassVar[frozenset[Ability]] = frozenset({"restart", "freeze"})
    options: ClassVar[dict[str, Any]] = {"queue_type": "classic"}

    @pytest.fixture
    def broker_server(self, private_rabbitmq):
        self.node = private_rabbitmq
        return private_rabbitmq

    async def declare(self, broker, topic, *groups):
        """The server answers before its definitions are on disk: a kill right after would lose the queue."""
        await super().declare(broker, topic, *groups)
        await asyncio.to_thread(self.node.control, "eval", "mnesia:sync_log().")

    @pytest.fixture(autouse=True)
    def quiet(self, caplog):
        """Whatever happens to the server, its client logs nothing, and nobody forgets a task."""
        yield
        said = [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
        assert [record.getMessage() for record in said] == []

    async def test_the_servers_own_limit_rejects_one(self, broker, topic, group):
        await self.declare(broker, topic, group)
        large = message(topic, "a", b"x" * (MAX_MESSAGE_BYTES + 1))
        batch = [message(topic, "a"), large, message(topic, "a"), *(message(topic, f"k-{n}") for n in range(50))]
        outcomes = await broker.publish(batch)
        assert outcomes[0] == SENT
        assert isinstance(outcomes[1], Rejected)
        assert outcomes[1].fault.code == "rabbitmq.refused"
        assert outcomes[2:] == [HELD, *[SENT] * 50]

    async def test_a_server_short_of_memory_blocks(self, server, connect, topic, group):
        broker = await connect()
        await self.declare(broker, topic, group)
        await sent(broker, [message(topic)])
        server.control("set_vm_memory_high_watermark", "absolute", "1")
        try:
            async with within(5):
                outcomes = await broker.publish(numbered(topic, 5))
                assert {outcome.fault.code for outcome in outcomes} == {"rabbitmq.blocked"}
                assert await attempt(broker, numbered(topic, 5)) == [None] * 5
        finally:
            server.control("set_vm_memory_high_watermark", "absolute", "512MB")
        await sent_in_the_end(broker, numbered(topic, 5), self.patience)

    async def test_a_topic_that_is_not_allowed_fails_alone(self, server, broker, topic, group):
        await self.declare(broker, topic, group)
        server.control("set_topic_permissions", "guest", "postlude", "^topic-", ".*")
        try:
            outcomes = await broker.publish([message(topic, "a"), message("secret", "b"), message(topic, "c")])
        finally:
            server.control("clear_topic_permissions", "guest")
        assert isinstance(outcomes[1], Failed)
        assert outcomes[1].fault.code == "rabbitmq.topic_refused"
        assert [outcomes[0], outcomes[2]] == [SENT, SENT]


RETURN = Basic.Return(312, "NO_ROUTE", "postlude", "t")
RETURNED: Any = SimpleNamespace(delivery=RETURN)
CASES = [
    (amqp.PublishError(RETURNED, RETURN), Rejected, "rabbitmq.unroutable"),
    (amqp.DeliveryError(None, Basic.Nack(1)), Failed, "rabbitmq.nacked"),
    (amqp.ChannelPreconditionFailed("PRECONDITION_FAILED - message size"), Rejected, "rabbitmq.refused"),
    (amqp.ChannelClosed(311, "CONTENT_TOO_LARGE"), Rejected, "rabbitmq.too_large"),
    (amqp.ChannelAccessRefused("ACCESS_REFUSED - access to topic 't'"), Failed, "rabbitmq.topic_refused"),
    (amqp.ChannelAccessRefused("ACCESS_REFUSED - access to exchange"), Unavailable, "rabbitmq.access_refused"),
    (amqp.ChannelNotFoundEntity("NOT_FOUND - no exchange"), Unavailable, "rabbitmq.exchange_missing"),
    (amqp.ChannelLockedResource("RESOURCE_LOCKED"), Unavailable, "rabbitmq.locked"),
    (amqp.ChannelClosed(504, "CHANNEL_ERROR"), Unavailable, "rabbitmq.channel_closed"),
    (amqp.ChannelInvalidStateError("closed"), Unavailable, "rabbitmq.channel_closed"),
    (amqp.AMQPConnectionError("reset"), Unavailable, "rabbitmq.connection_lost"),
    (amqp.ConnectionClosed(320, "CONNECTION_FORCED"), Unavailable, "rabbitmq.connection_lost"),
    (amqp.ConnectionInternalError("INTERNAL_ERROR"), Unavailable, "rabbitmq.connection_lost"),
    (TimeoutError(), Unavailable, "rabbitmq.timeout"),
    (ConnectionResetError(), Unavailable, "rabbitmq.connection_lost"),
    (amqp.InvalidFrameError("?"), Unavailable, "rabbitmq.protocol"),
    (ValueError("Routing key too long"), Rejected, "rabbitmq.not_encodable"),
    (struct.error("?"), Rejected, "rabbitmq.not_encodable"),
]


class TestTheTable:
    @pytest.mark.parametrize(("error", "verdict", "code"), CASES, ids=[case[2] for case in CASES])
    def test_each_error_has_its_meaning(self, error, verdict, code):
        outcome = failure(error, "postlude", "t")
        assert (type(outcome), outcome.fault.code) == (verdict, code)

    def test_every_row_is_walked(self):
        assert {id(row_of(error)) for error, _, _ in CASES} == {id(row) for row in TABLE}

    def test_no_error_of_the_client_is_left_out(self):
        known = [kind for kind in vars(amqp).values() if isinstance(kind, type) and issubclass(kind, Exception)]
        assert known
        assert [kind for kind in known if not issubclass(kind, ERRORS)] == []

    def test_only_a_channel_closed_for_a_message_leaves_the_culprit_open(self):
        open_ones = {code for error, _, code in CASES if blames_one(error)}
        assert open_ones == {"rabbitmq.refused", "rabbitmq.too_large", "rabbitmq.topic_refused"}


class TestQueues:
    @pytest.mark.parametrize(
        ("version", "options", "arguments"),
        [
            ((3, 7), {}, [{}]),
            ((3, 10), {}, [{"x-queue-type": "quorum", "x-single-active-consumer": True}]),
            ((3, 10), {"queue_type": "classic", "single_active": False}, [{}]),
            (
                (3, 10),
                {"queue_arguments": {"x-queue-type": "stream"}, "single_active": False},
                [{"x-queue-type": "stream"}],
            ),
            ((4, 1), {"single_active": False}, [{"x-queue-type": "quorum", LIMIT: -1}, {"x-queue-type": "quorum"}]),
            ((4, 1), {"queue_type": "classic", "single_active": False}, [{}]),
        ],
    )
    def test_they_suit_the_server(self, version, options, arguments):
        assert queue_arguments(RabbitmqOptions(**options), version) == arguments


class TestOptions:
    async def test_they_stand_in_the_query_too(self):
        broker = RabbitmqBroker("amqp://h/v?exchange=shop&single_active=false&max_bytes=10&timeout=2.5&cafile=ca.pem")
        assert broker.features == BrokerFeatures(ordered_by_key=False, ordered_failure=True, max_bytes=10)
        assert broker._options.exchange == "shop"
        assert dict(broker._target.url.query) == {"name": "postlude", "cafile": "ca.pem", "heartbeat": "10"}

    @pytest.mark.parametrize("options", [{"exchang": "x"}, {"timeout": "soon"}, {"queue_type": "stream"}])
    async def test_what_is_not_known_is_refused(self, options):
        with pytest.raises(SettingsError, match="single_active"):
            RabbitmqBroker("amqp://h/", options)

    @pytest.mark.parametrize("url", ["amqp://", "http://host/", "amqp://guest:s3cret@host:port/"])
    async def test_a_bad_url_is_refused(self, url):
        with pytest.raises(BadUrl) as refused:
            RabbitmqBroker(url)
        assert "s3cret" not in str(refused.value)


@asynccontextmanager
async def passed_on(url, *, port=0, context=None):
    """Another port, with TLS or without, that leads to the server."""
    there = urlsplit(url)

    async def copy(reader, writer):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def serve(reader, writer):
        to_reader, to_writer = await asyncio.open_connection(there.hostname, there.port)
        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer), return_exceptions=True)
        for each in (writer, to_writer):
            each.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
