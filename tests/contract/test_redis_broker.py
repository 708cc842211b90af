"""Redis Streams passes the broker contract, and keeps what is special about it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis as client
from hypothesis import example, given
from hypothesis import strategies as st
from redis._parsers.base import BaseParser
from redis.asyncio import Connection

from postlude import Postlude, Settings
from postlude.brokers.redis import RedisBroker, subscription
from postlude.brokers.redis.faults import TABLE, outcome_of, word_of
from postlude.brokers.redis.link import LARGE, packed
from postlude.core.outcome import Failed, Rejected, Sent, Unavailable
from postlude.errors import BadUrl, ConfigurationError
from postlude.ports.broker import BrokerFeatures
from postlude.testing.contracts.broker import BrokerContract
from postlude.testing.contracts.broker_arrange import Ability, ids, joined, message, numbered, received, sent
from postlude.testing.contracts.broker_receiving import BrokerReceiving
from tests.engine import PATIENCE, Noted, notes
from tools.places import free_port
from tools.redis import OWN

IS_OWN = OWN in os.environ
SOON = {"claim_after": 0.5}
of_ours = pytest.mark.skipif(IS_OWN, reason="changes settings of the server")


class OnRedis:
    too_large = None if IS_OWN else 1_100_000
    has_dead_end = True
    has_foreign = True
    member_options: ClassVar[dict[str, Any]] = SOON

    @pytest.fixture
    def broker_server(self, redis_server):
        return redis_server

    @pytest.fixture
    def make_broker(self, broker_server):
        return lambda **options: RedisBroker(broker_server.url, self.member_options | options)

    async def dead_end(self, broker):
        topic = f"not-a-stream-{uuid4()}"
        await broker._link.require([("SET", topic, "1", "EX", 60)])
        return topic

    async def put_foreign(self, server, topic, payload):
        with client.Redis.from_url(server.url) as other:
            other.xadd(topic, {b"\xff\xfe": payload})


class TestCompeting(OnRedis, BrokerReceiving):
    """Members share, which keeps no order."""

    features = BrokerFeatures(ordered_by_key=False)
    member_options: ClassVar[dict[str, Any]] = {**SOON, "single_active": False}


class TestRedisBroker(OnRedis, BrokerContract):
    features = BrokerFeatures()
    abilities: ClassVar[frozenset[Ability]] = (
        frozenset({"process"}) if IS_OWN else frozenset({"restart", "freeze", "process"})
    )

    async def test_nothing_overtakes_what_another_member_has(self, connect, topic, group):
        patient, hasty = await connect(claim_after=60), await connect(claim_after=0.1)
        batch = numbered(topic, 30, key="k")
        async with joined(patient, topic, group) as one, joined(hasty, topic, group) as other:
            await sent(patient, batch)
            had = await received(other, 5, self.patience, limit=5)
            assert await one.receive(20, 0.1) == []
            await other.ack(had)
            assert ids(await received(one, 5, self.patience, limit=5)) == ids(batch[5:10])
            # It hangs with what it has: that is taken over before anything new.
            come = await received(other, 25, self.patience, ack=True)
        assert ids([*had, *come]) == ids(batch)

    async def test_a_stream_is_trimmed_below_what_a_group_still_needs(self, broker, topic, group):
        await sent(broker, numbered(topic, 1000))
        assert await broker.trim(topic) == 0, "nobody has read it"
        async with (
            joined(broker, topic, f"{group}-1", prefetch=1000) as fast,
            joined(broker, topic, f"{group}-2") as slow,
        ):
            everything = await received(fast, 1000, self.patience, ack=True)
            assert await broker.trim(topic) == 0, "the other group has read nothing"
            come = await received(slow, 450, self.patience, limit=450)
            await slow.ack(come[:250])
            assert 100 <= await broker.trim(topic) <= 250
            await slow.ack(come[300:])
            assert await broker.trim(topic) == 0, "the entries in between are not acknowledged"
            rest = await received(slow, 550, self.patience, ack=True)
            assert ids([*come, *rest]) == ids(everything)
            await slow.ack(come[250:300])
            removed = [await broker.trim(topic, limit=300) for _ in range(4)]
            assert max(removed) <= 300
            assert await _length(broker, topic) <= 100

    async def test_members_trim_when_they_are_told_to(self, connect, topic, group):
        broker = await connect(trim_every=0)
        await sent(broker, numbered(topic, 500))
        async with joined(broker, topic, group) as member:
            await received(member, 500, self.patience, ack=True)
        assert await _length(broker, topic) <= 100

    async def test_a_length_is_kept_where_it_was_asked_for(self, connect, topic):
        broker = await connect(max_length=100)
        await sent(broker, numbered(topic, 500))
        assert 100 <= await _length(broker, topic) < 300

    async def test_a_stream_that_vanished_is_begun_again(self, broker, topic, group):
        async with joined(broker, topic, group, start="latest") as member:
            await broker._link.require([("DEL", topic)])
            await sent(broker, [one := message(topic)])
            assert ids(await received(member, 1, self.patience, ack=True)) == [str(one.id)]

    async def test_entries_of_a_lost_answer_come_first(self, broker, topic, group):
        await sent(broker, numbered(topic, 20))
        async with broker.subscribe([topic], group) as member:
            read = ("XREADGROUP", "GROUP", group, member._name, "COUNT", 10, "STREAMS", topic, ">")
            await broker._link.require([read])
            member._unsure = True  # as after an error while reading
            come = await received(member, 20, self.patience, ack=True)
        assert [int(one.payload) for one in come] == list(range(20))

    async def test_what_a_member_leaves_waits_for_nobody(self, connect, topic, group):
        broker = await connect(claim_after=3600)
        await sent(broker, batch := numbered(topic, 5))
        async with joined(broker, topic, group) as member:
            await received(member, 5, self.patience)
        async with joined(broker, topic, group) as member:
            assert ids(await received(member, 5, self.patience, ack=True)) == ids(batch)

    async def test_a_member_leaves_no_name_behind(self, broker, topic, group):
        await sent(broker, numbered(topic, 5))
        async with joined(broker, topic, group) as member:
            await received(member, 5, self.patience, ack=True)
        (names,) = await broker._link.require([("XINFO", "CONSUMERS", topic, group)])
        assert names == []

    async def test_names_of_the_dead_are_forgotten_when_they_hold_nothing(self, broker, topic, group, monkeypatch):
        monkeypatch.setattr(subscription, "FORGET_AFTER", -1)
        read = ("XREADGROUP", "GROUP", group, "dead-1", "COUNT", 1, "STREAMS", topic, ">")
        make = ("XGROUP", "CREATECONSUMER", topic, group, "dead-2")
        await sent(broker, [message(topic)])
        await broker._link.require([("XGROUP", "CREATE", topic, group, "0"), read, make])
        async with joined(broker, topic, group):
            (names,) = await broker._link.require([("XINFO", "CONSUMERS", topic, group)])
        assert [name[1] for name in names] == [b"dead-1"]

    @of_ours
    async def test_user_and_password_are_in_the_url(self, broker, broker_server, topic):
        rules = ("on", ">p@ss:word", "~*", "+@all")
        await broker._link.require([("ACL", "SETUSER", "joe", *rules)])
        known = RedisBroker(broker_server.url.replace("://", "://joe:p%40ss%3Aword@"))
        unknown = RedisBroker(broker_server.url.replace("://", "://joe:guessed@"))
        try:
            await sent(known, [message(topic)])
            (outcome,) = await unknown.publish([message(topic)])
            assert isinstance(outcome, Unavailable)
            assert outcome.fault.code == "AUTH"
        finally:
            await known.close()
            await unknown.close()
            await broker._link.require([("ACL", "DELUSER", "joe")])

    @of_ours
    async def test_tls(self, broker, broker_server, topic):
        place, port = broker_server.place, free_port()
        _make_certificate(place)
        files = ("tls-cert-file", str(place / "cert.pem"), "tls-key-file", str(place / "key.pem"))
        await broker._link.require([("CONFIG", "SET", *files, "tls-auth-clients", "no", "tls-port", port)])
        trusting = RedisBroker(f"rediss://127.0.0.1:{port}", {"ssl_ca_certs": str(place / "cert.pem")})
        distrusting = RedisBroker(f"rediss://127.0.0.1:{port}")
        try:
            await sent(trusting, [message(topic)])
            (outcome,) = await distrusting.publish([message(topic)])
            assert isinstance(outcome, Unavailable)
        finally:
            await trusting.close()
            await distrusting.close()
            await broker._link.require([("CONFIG", "SET", "tls-port", 0)])

    async def test_an_app_relays_to_it(self, broker, broker_server, sqlite_url, group):
        given = {"default": {"url": broker_server.url, "options": {"max_length": 1000}}}
        app = Postlude(sqlite_url, settings=Settings.load(environ={}, brokers=given))
        app.route(Noted)
        assert app.broker()._options.max_length == 1000
        topic = f"noted-{group}"
        async with app.transaction() as tx:
            many = [await app.outbox.append(tx, Noted(key="k", n=n), topic=topic) for n in range(10)]
        await app.drain()
        await app.close()
        async with joined(broker, topic, group) as member:
            come = await received(member, 10, self.patience, ack=True)
        assert ids(come) == [str(one) for one in many]
        assert [one.n for one in notes(come)] == list(range(10))
        assert {(one.key, one.headers["ce_type"]) for one in come} == {("k", "test.noted")}

    @of_ours
    async def test_a_full_redis_is_unavailable(self, broker, topic):
        await sent(broker, [message(topic)])
        try:
            await broker._link.require([("CONFIG", "SET", "maxmemory", "1")])
            (outcome,) = await broker.publish([message(topic)])
        finally:
            await broker._link.require([("CONFIG", "SET", "maxmemory", "0")])
        assert isinstance(outcome, Unavailable)
        assert outcome.fault.code == "OOM"

    async def test_what_was_answered_before_the_connection_broke_is_sent(self, broker_server, topic):
        async with ending_after_one_answer(broker_server.url) as url:
            broker = RedisBroker(url)
            broker._limit = 10**9  # else it asks for it, and that is the one answer
            outcomes = await broker.publish(numbered(topic, 3))
            await broker.close()
        assert [type(outcome) for outcome in outcomes] == [Sent, Unavailable, Unavailable]

    @of_ours
    async def test_nothing_is_sent_from_where_the_server_ended_the_connection(self, broker, topic):
        broker._limit = 10**9  # as where nobody may ask for it: Redis ends the connection at the large one
        batch = [message(topic, "a"), message(topic, "b", b"x" * 1_100_000), message(topic, "c")]
        first, large, last = await broker.publish(batch)
        assert isinstance(first, Sent | Unavailable)  # the network may lose the last answer of who hangs up
        assert isinstance(large, Rejected | Unavailable)
        assert isinstance(last, Unavailable)


@asynccontextmanager
async def ending_after_one_answer(url):
    """The way to the server, which takes all that is sent, and breaks in order after the first id of an entry."""
    there = urlsplit(url)
    over = asyncio.Event()

    async def serve(reader, writer):
        server_reader, server_writer = await asyncio.open_connection(there.hostname, there.port)

        async def requests():
            while data := await reader.read(65_536):
                server_writer.write(data)

        async def answers():
            while (line := await server_reader.readline()) and not line.startswith(b"$"):
                writer.write(line)
            writer.write(line + await server_reader.readline())
            writer.write_eof()

        await asyncio.gather(requests(), answers())
        for each in (writer, server_writer):
            each.close()
            await each.wait_closed()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        who, at, _ = there.netloc.rpartition("@")
        yield there._replace(netloc=f"{who}{at}{host}:{port}").geturl()
        await over.wait()


SAID = {
    "AUTH": "NOAUTH Authentication required.",
    "ERR": "ERR something of tomorrow",
    "MOVED": "MOVED 3999 127.0.0.1:6381",
    "ASK": "ASK 3999 127.0.0.1:6381",
    "PROTOCOL": "ERR Protocol error: invalid bulk length",
}
NOTICED = {
    "CONNECTION": ConnectionRefusedError("refused"),
    "TIMEOUT": TimeoutError(),
    "ENCODING": client.DataError("Invalid input of type"),
}


@pytest.mark.parametrize("word", [word for word in TABLE if word != "TOOLARGE"])
def test_errors_are_sorted_as_the_table_says(word):
    error = NOTICED.get(word) or BaseParser.parse_error(SAID.get(word, f"{word} as Redis says it"))
    assert word_of(error) == word
    outcome = outcome_of(error)
    assert type(outcome) is TABLE[word]
    assert outcome.fault.code == word


def test_other_errors():
    assert word_of(client.TimeoutError("x")) == "TIMEOUT"
    assert word_of(client.ConnectionError("x")) == "CONNECTION"
    assert word_of(client.AuthenticationError("x")) == "AUTH"
    assert isinstance(outcome_of(client.ResponseError("NEWWORD unheard of")), Failed)


def test_options_are_checked_and_no_secret_is_shown():
    with pytest.raises(ConfigurationError, match="claim_after"):
        RedisBroker("redis://h", {"claim_after": "soon"})
    with pytest.raises(BadUrl) as refused:
        RedisBroker("redis://me:hunter2@h/x?socket_timeout=x")
    assert "hunter2" not in str(refused.value)


async def test_what_stands_in_the_url_does_not_break_reading(redis_server):
    broker = RedisBroker(f"{redis_server.url}/0?socket_timeout=0.05&decode_responses=true&health_check_interval=5")
    topic = f"topic-{uuid4()}"
    async with joined(broker, topic, "g") as member:
        assert await member.receive(1, 0.2) == []
        await sent(broker, [message(topic, "k")])
        assert [one.key for one in await received(member, 1, PATIENCE)] == ["k"]
    await broker.close()


@given(st.lists(st.lists(st.binary() | st.text() | st.integers()), max_size=5))
@example([["t", b"x" * LARGE, "y" * LARGE, 1], []])
def test_commands_are_packed_as_the_client_packs_them(arguments):
    commands = [["XADD", *those] for those in arguments]
    assert b"".join(packed(commands)) == b"".join(Connection().pack_commands(commands))


def test_an_option_that_the_client_does_not_know_is_named():
    with pytest.raises(ConfigurationError, match="lingr"):
        RedisBroker("redis://127.0.0.1:1", {"lingr": 5})
    with pytest.raises(ConfigurationError, match="lingr"):
        RedisBroker("redis://127.0.0.1:1?lingr=5")


async def test_a_password_is_not_in_errors():
    broker = RedisBroker("redis://me:hunter2@127.0.0.1:1", {"timeout": 5})
    async with asyncio.timeout(PATIENCE):
        (outcome,) = await broker.publish([message("t")])
        assert isinstance(outcome, Unavailable)
        async with joined(broker, "t", "g") as member:
            with pytest.raises(Exception, match="CONNECTION") as refused:
                await member.receive(1, 0)
    assert "hunter2" not in str(refused.value)
    await broker.close()


def _make_certificate(place):
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    named = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make.split(), *named], cwd=place, check=True, capture_output=True)
    (place / "key.pem").chmod(0o644)  # the server may run as somebody else


async def _length(broker, topic):
    (length,) = await broker._link.require([("XLEN", topic)])
    return length
