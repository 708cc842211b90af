"""Kafka against the broker contract: on Apache Kafka where it can be had, else on librdkafka's mock cluster."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar
from uuid import UUID

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka
from aiokafka.partitioner import murmur2
from msgspec import structs

from postlude.brokers.kafka import KafkaBroker
from postlude.brokers.kafka.call import partition_of, waves
from postlude.brokers.kafka.errors import TABLE, Kind, kind_of, outcome_of
from postlude.brokers.kafka.progress import Progress
from postlude.brokers.kafka.url import connection
from postlude.core.outcome import HELD, SENT, Failed, Fault, Rejected, Unavailable
from postlude.errors import BadUrl, ConfigurationError
from postlude.ports.broker import BrokerFeatures
from postlude.testing.contracts.broker import BrokerContract
from postlude.testing.contracts.broker_arrange import (
    attempt,
    ids,
    joined,
    message,
    numbered,
    received,
    sent,
    sent_in_the_end,
    some,
)
from tests.engine import PATIENCE, until
from tools.kafka import OWN, Jars, KafkaMock, KafkaServer, available

PRODUCE = 0
TOO_LARGE, NOT_ENOUGH_REPLICAS, NOT_AUTHORIZED, OUT_OF_ORDER = 10, 19, 29, 45


def _jars() -> Jars | None:
    try:
        return available()
    except LookupError:
        return None


JARS = None if OWN in os.environ else _jars()
IS_OWN = OWN in os.environ
IS_MOCK = JARS is None and not IS_OWN


class OwnServer:
    """The user's: nothing is done to it."""

    name = f"the Kafka of {OWN}"

    @property
    def url(self) -> str:
        return f"kafka://{os.environ[OWN]}"


@pytest.fixture(scope="module")
def kafka_server() -> Iterator[Any]:
    if IS_OWN:
        yield OwnServer()
        return
    with KafkaServer(JARS) if JARS else KafkaMock() as server:
        yield server


@pytest.fixture(scope="module")
def kafka_mock() -> Iterator[KafkaMock]:
    with KafkaMock() as mock:
        yield mock


GROUPS = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
"""Longer than a loaded machine stands still: a member that misses it is given everything again."""


class TestKafkaBroker(BrokerContract):
    features = BrokerFeatures(ordered_failure=True)
    abilities = frozenset({"process"} if IS_OWN else {"process", "restart", "freeze"})
    too_large = 1_100_000
    has_dead_end = True
    has_foreign = True
    member_options: ClassVar[dict[str, Any]] = GROUPS
    if IS_MOCK:  # it only pretends to be down: whatever it holds is in its memory
        test_what_was_confirmed_survives_a_kill = None  # type: ignore[assignment]
        # It never ends the rebalance of two members of aiokafka.
        test_members_share_what_comes = None  # type: ignore[assignment]

    @pytest.fixture
    def broker_server(self, request: pytest.FixtureRequest, kafka_server: Any) -> Any:
        request.node.user_properties.append(("server", kafka_server.name))
        return kafka_server

    @pytest.fixture
    def make_broker(self, broker_server: Any) -> Callable[..., KafkaBroker]:
        def make(**options: Any) -> KafkaBroker:
            return KafkaBroker(broker_server.url, {"timeout": 10, **GROUPS, **options})

        return make

    async def dead_end(self, broker: Any) -> str:
        return "no topic/has such a name"

    async def put_foreign(self, server: Any, topic: str, payload: bytes) -> None:
        async with AIOKafkaProducer(bootstrap_servers=server.url.removeprefix("kafka://")) as producer:
            await producer.send_and_wait(topic, payload, key=b"\xff\x00")


class TestFaults:
    """What a real broker does rarely, told to the mock cluster."""

    @pytest.fixture
    async def mock(self, request: pytest.FixtureRequest, kafka_mock: KafkaMock) -> AsyncIterator[KafkaMock]:
        request.node.user_properties.append(("server", kafka_mock.name))
        yield kafka_mock
        kafka_mock.tell("clear", PRODUCE)
        kafka_mock.tell("rtt", 0)

    @pytest.fixture
    async def broker(self, mock: KafkaMock) -> AsyncIterator[KafkaBroker]:
        broker = KafkaBroker(mock.url, {"timeout": 10, **GROUPS})
        await sent(broker, [message("faults", "warm")])
        yield broker
        await broker.close()

    async def test_a_batch_that_is_too_large_is_tried_message_by_message(self, mock, broker):
        mock.tell("fail", PRODUCE, [TOO_LARGE])
        await sent(broker, numbered("faults", 5, key="k"))

    async def test_only_what_is_too_large_alone_is_rejected(self, mock, broker):
        mock.tell("fail", PRODUCE, [TOO_LARGE, TOO_LARGE])
        outcomes = await broker.publish(numbered("faults", 3, key="k"))
        assert outcomes == [Rejected(Fault("MessageSizeTooLargeError", "kafka.10")), HELD, HELD]
        await sent(broker, [message("faults", "k")])

    async def test_a_producer_that_lost_count_is_made_again(self, mock, broker):
        before = broker._producers._running
        mock.tell("fail", PRODUCE, [OUT_OF_ORDER])
        await sent(broker, numbered("faults", 5, key="k"))
        assert broker._producers._running is not before

    async def test_one_that_loses_count_again_and_again_is_an_outage(self, mock, broker):
        mock.tell("fail", PRODUCE, [OUT_OF_ORDER] * 2)
        outcomes = await broker.publish(numbered("faults", 2, key="k"))
        assert outcomes == [Unavailable(Fault("OutOfOrderSequenceNumber", "kafka.45")), HELD]
        await sent(broker, [message("faults", "k")])

    async def test_a_topic_that_is_not_ours_rejects(self, mock, broker):
        mock.tell("fail", PRODUCE, [NOT_AUTHORIZED])
        assert await broker.publish([message("faults")]) == [SENT]  # a batch may fail for another's sake: tried again
        mock.tell("fail", PRODUCE, [NOT_AUTHORIZED] * 2)
        assert isinstance((await broker.publish([message("faults")]))[0], Rejected)

    async def test_what_passes_is_waited_for(self, mock, broker):
        mock.tell("fail", PRODUCE, [NOT_ENOUGH_REPLICAS] * 3)
        await sent(broker, numbered("faults", 5))

    async def test_what_does_not_pass_in_time_is_an_outage(self, mock):
        broker = KafkaBroker(mock.url, {"timeout": 1})
        await sent_in_the_end(broker, [message("faults")], PATIENCE)
        mock.tell("fail", PRODUCE, [NOT_ENOUGH_REPLICAS] * 100)
        assert await broker.publish([message("faults")]) == [Unavailable(Fault("TimeoutError"))]
        mock.tell("clear", PRODUCE)
        await sent_in_the_end(broker, [message("faults")], PATIENCE)
        await broker.close()

    async def test_a_key_goes_on_in_another_topic_only_after_its_confirmation(self, mock, broker):
        await sent(broker, [message("faults-2")])
        mock.tell("fail", PRODUCE, [TOO_LARGE] * 2)
        outcomes = await broker.publish([message("faults", "k"), message("faults-2", "k"), message("faults", "k")])
        assert isinstance(outcomes[0], Rejected)
        assert outcomes[1:] == [HELD, HELD]

    async def test_a_slow_network_costs_a_batch_one_round_trip_each(self, mock, broker):
        mock.tell("rtt", 100)
        await sent(broker, [message("faults", f"key-{number}") for number in range(500)])

    async def test_an_outage_leaves_no_traceback_and_no_task(self, mock, caplog):
        before = asyncio.all_tasks()
        broker = KafkaBroker(mock.url, {"timeout": 1, **GROUPS})
        await sent_in_the_end(broker, [message("outage")], PATIENCE)
        async with joined(broker, "outage", "outage") as member:
            await received(member, 1, PATIENCE, ack=True)
            mock.tell("down")
            try:
                assert await attempt(broker, [message("outage")]) == [None]
                assert await attempt(broker, [message("outage")]) == [None]
                assert await some(member, 1) == []
            finally:
                mock.tell("up")
        await broker.close()
        gc.collect()
        assert [record.message for record in caplog.records if record.exc_info] == []
        await until(lambda: asyncio.all_tasks() <= before)

    async def test_compression(self, mock):
        broker = KafkaBroker(f"{mock.url}?compression=gzip", {"timeout": 10, **GROUPS})
        batch = numbered("compressed", 100, key="k")
        await sent(broker, batch)
        async with joined(broker, "compressed", "g") as member:
            assert ids(await received(member, 100, PATIENCE, ack=True)) == ids(batch)
        await broker.close()


class TestErrors:
    def test_every_row_of_the_table_gives_its_outcome(self):
        kinds = {
            Kind.rejected: Rejected,
            Kind.failed: Failed,
            Kind.unavailable: Unavailable,
            Kind.sequence: Unavailable,
        }
        for error, kind in TABLE.items():
            assert type(outcome_of(error())) is kinds[kind], error

    def test_what_the_client_would_retry_is_never_the_message_s_fault(self):
        errors: list[Any] = [
            each for each in vars(kafka).values() if isinstance(each, type) and issubclass(each, kafka.KafkaError)
        ]
        retriable = [each for each in errors if each.retriable]
        assert len(retriable) > 15
        for error in retriable:
            expected = Kind.failed if issubclass(error, kafka.UnknownTopicOrPartitionError) else Kind.unavailable
            assert kind_of(error()) is expected, error

    def test_what_nobody_foresaw_is_tried_again(self):
        assert kind_of(kafka.KafkaError()) is Kind.failed
        assert kind_of(ConnectionResetError()) is Kind.unavailable

    def test_no_secret_is_in_an_outcome(self):
        assert outcome_of(kafka.KafkaConnectionError("user:secret@host")) == Unavailable(Fault("KafkaConnectionError"))


class TestPartitions:
    @pytest.mark.parametrize(
        ("key", "expected"),
        [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            ("abc", 479470107),
        ],
    )
    def test_keys_fall_where_the_java_client_puts_them(self, key, expected):
        assert (murmur2(key.encode()) ^ 0x80000000) - 0x80000000 == expected
        assert partition_of(message("t", key), range(6)) == (expected & 0x7FFFFFFF) % 6

    def test_without_a_key_they_are_spread_and_a_duplicate_stays(self):
        messages = [structs.replace(message("t"), id=UUID(int=number)) for number in range(8)]
        assert [partition_of(one, range(4)) for one in messages] == [0, 1, 2, 3] * 2

    def test_waves(self):
        topics = [("a", "k"), ("a", "k"), ("b", "k"), ("a", "other"), ("a", "k"), ("b", None), ("a", None)]
        messages = [message(topic, key) for topic, key in topics]
        assert waves(messages, range(7)) == [[0, 1, 3, 5, 6], [2], [4]]


class TestProgress:
    def test_a_position_never_passes_what_is_not_acknowledged(self):
        progress = Progress()
        assert all(progress.take(offset) for offset in (10, 11, 12, 15))
        assert progress.ack(12) is None
        assert progress.ack(10) == 11
        assert progress.ack(11) == 13
        assert progress.ack(11) is None
        assert progress.ack(15) == 16
        assert progress.held == 0

    def test_after_a_refusal_only_what_was_refused_comes_again(self):
        progress = Progress()
        for offset in range(5):
            progress.take(offset)
        progress.ack(0)
        progress.ack(2)
        progress.refuse(1)
        progress.refuse(3)
        assert progress.first_refused == 1
        assert [offset for offset in range(6) if progress.take(offset)] == [1, 3, 5]
        assert progress.first_refused is None
        assert progress.ack(1) == 3


class TestUrl:
    def test_hosts_and_defaults(self):
        assert connection("kafka://one,two:9093/") == {
            "bootstrap_servers": ["one:9092", "two:9093"],
            "security_protocol": "PLAINTEXT",
        }

    def test_a_login_and_tls(self):
        given = connection(
            "kafka://us%40er:p%3Ass@host:9092?security=SASL_SSL&mechanism=SCRAM-SHA-256&compression=gzip"
        )
        context = given.pop("ssl_context")
        assert context.check_hostname
        assert given == {
            "bootstrap_servers": ["host:9092"],
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "us@er",
            "sasl_plain_password": "p:ss",
            "compression_type": "gzip",
        }

    @pytest.mark.parametrize(
        ("url", "security"),
        [
            ("kafka+ssl://host", "SSL"),
            ("kafka+ssl://u:p@host", "SASL_SSL"),
            ("kafka://u:p@host", "SASL_PLAINTEXT"),
        ],
    )
    def test_security_follows_from_the_rest(self, url, security):
        assert connection(url)["security_protocol"] == security

    @pytest.mark.parametrize(
        "url",
        [
            "kafka://",
            "kafka://host/topic",
            "kafka://host?acks=1",
            "kafka://host?security=none",
            "kafka://u:secret@host?mechanism=MD5",
            "kafka://host?security=SASL_SSL",
            "kafka+ssl://host?ca=no-such-file",
        ],
    )
    def test_what_is_wrong_is_said_without_secrets(self, url):
        with pytest.raises(BadUrl) as refused:
            connection(url)
        assert refused.value.hint
        assert "secret" not in str(refused.value)

    @pytest.mark.parametrize("options", [{"acks": 1}, {"enable_auto_commit": True}, {"lingr_ms": 5}])
    async def test_options_that_break_a_guarantee_or_do_not_exist_are_refused(self, options):
        with pytest.raises(ConfigurationError):
            KafkaBroker("kafka://host", options)

    async def test_it_shows_no_password(self):
        assert "secret" not in repr(KafkaBroker("kafka://user:secret@host"))
