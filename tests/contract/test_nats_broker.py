"""NATS JetStream against the broker contract."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import uuid4

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats import errors as client_errors
from nats.js import errors as jetstream
from nats.js.api import StreamConfig

from postlude.brokers.nats import NatsBroker
from postlude.brokers.nats import wire as nats_wire
from postlude.brokers.nats.errors import TABLE, Kind, NoStream, kind_of, outcome_of
from postlude.brokers.nats.options import servers_of, split
from postlude.core.outcome import SENT, Failed, Fault, Rejected, Unavailable
from postlude.errors import BadUrl, BrokerUnavailable, ConfigurationError
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
from postlude.testing.contracts.broker_receiving import BrokerReceiving
from tests.engine import until
from tools.nats import OWN, NatsServer, available

IS_OWN = OWN in os.environ
OPTIONS = {"stream": "contract", "subjects": ["*"], "ack_wait": 5}


class OwnServer:
    """The user's: nothing is done to it."""

    version = f"of {OWN}"

    @property
    def url(self) -> str:
        return f"nats://{os.environ[OWN]}"


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Any]:
    if IS_OWN:
        yield OwnServer()
        return
    with NatsServer(available()) as server:
        yield server


class OnNats:
    too_large: ClassVar[int | None] = 1_100_000
    has_dead_end = True
    has_foreign = True
    member_options: ClassVar[dict[str, Any]] = OPTIONS

    @pytest.fixture
    def broker_server(self, request: pytest.FixtureRequest, nats_server: Any) -> Any:
        request.node.user_properties.append(("server", f"nats {nats_server.version}"))
        return nats_server

    @pytest.fixture
    def make_broker(self, broker_server: Any) -> Callable[..., NatsBroker]:
        def make(**options: Any) -> NatsBroker:
            return NatsBroker(broker_server.url, {"timeout": 10, **self.member_options, **options})

        return make

    async def dead_end(self, broker: Any) -> str:
        return "nowhere.at.all"

    async def put_foreign(self, server: Any, topic: str, payload: bytes) -> None:
        async with closing(NatsBroker(server.url, OPTIONS)) as broker, joined(broker, topic, "first"):
            pass  # makes the stream, when no test before has made it
        client = await nats.connect(server.url)
        await client.jetstream().publish(topic, payload)
        await client.close()


class TestCompeting(OnNats, BrokerReceiving):
    """Members share, which keeps no order."""

    features = BrokerFeatures(ordered_by_key=False, native_dedup=True)
    member_options: ClassVar[dict[str, Any]] = {**OPTIONS, "single_active": False}


class TestNatsBroker(OnNats, BrokerContract):
    features = BrokerFeatures(native_dedup=True)
    abilities = frozenset({"process"} if IS_OWN else {"process", "restart", "freeze"})
    # One receives, which keeps the order of keys: see the next test, and TestCompeting.
    test_members_share_what_comes = None  # type: ignore[assignment]

    async def test_nothing_overtakes_what_a_dead_member_had(self, broker, connect, topic, group):
        await self.declare(broker, topic, group)
        batch = numbered(topic, 20, key="k")
        async with joined(broker, topic, group) as dying, joined(await connect(), topic, group) as other:
            await sent(broker, batch)
            assert len(await received(dying, 5, self.patience, limit=5)) == 5
            await dying._connection.end()  # type: ignore[attr-defined]
            come = await received(other, 20, self.patience, ack=True)
        assert ids(come) == ids(batch)

    async def test_a_member_that_leaves_is_replaced_at_once(self, broker, connect, topic, group):
        await self.declare(broker, topic, group)
        batch = numbered(topic, 10, key="k")
        options = {"ack_wait": 60}
        async with joined(await connect(**options), topic, f"{group}-2") as other:
            async with joined(await connect(**options), topic, f"{group}-2") as leaving:
                await sent(broker, batch)
                assert len(await received(leaving, 5, self.patience, limit=5)) == 5
            come = await received(other, 10, self.patience, ack=True)
        assert ids(come) == ids(batch)

    @pytest.fixture
    async def client(self, broker_server):
        client = await nats.connect(broker_server.url)
        yield client
        await client.close()

    async def test_a_stream_that_is_required_and_missing_rejects(self, broker_server):
        options = {"stream": "none", "create": False, "timeout": 10}
        async with closing(NatsBroker(broker_server.url, options)) as broker:
            outcomes = await broker.publish([message("there.is.none")])
            assert outcomes == [Rejected(Fault("NoStream", "nats.no_stream"))]
            async with joined(broker, "there.is.none", "g") as member:
                with pytest.raises(BrokerUnavailable, match="cannot be joined") as refused:
                    await member.receive(1, 0.1)
            assert "stream none" in (refused.value.hint or "")

    async def test_a_stream_of_somebody_else_is_left_as_it_is(self, broker_server, client):
        name = f"theirs-{uuid4().hex[:8]}"
        theirs = StreamConfig(name=name, subjects=[f"{name}.>"], max_msg_size=1000)
        await client.jetstream().add_stream(theirs)
        options = {"stream": name, "subjects": ["ours.>"], "timeout": 10}
        async with closing(NatsBroker(broker_server.url, options)) as broker:
            small, large = message(f"{name}.a"), message(f"{name}.a", payload=b"x" * 2000)
            outcomes = await broker.publish([small, large, message(f"{name}.a")])
        assert [outcomes[0], outcomes[2]] == [SENT, SENT]
        assert outcomes[1] == Rejected(Fault("BadRequestError", "nats.10054"))
        assert (await client.jetstream().stream_info(name)).config.subjects == [f"{name}.>"]

    async def test_a_group_takes_new_topics_and_keeps_its_place(self, broker, topic, group):
        other = f"{topic}-other"
        await sent(broker, [message(topic)])
        async with joined(broker, topic, group) as member:
            await received(member, 1, self.patience, ack=True)
        async with broker.subscribe([topic, other], group) as member:
            await sent(broker, [message(other), message(topic)])
            come = await received(member, 2, self.patience, ack=True)
        assert [one.topic for one in come] == [other, topic]

    @pytest.mark.skipif(IS_OWN, reason=f"nothing is done to the server of {OWN}")
    async def test_an_outage_leaves_no_traceback_and_no_task(self, server, make_broker, topic, group, caplog):
        before = asyncio.all_tasks()
        broker = make_broker(timeout=1)
        await sent_in_the_end(broker, [message(topic)], self.patience)
        async with joined(broker, topic, group) as member:
            await received(member, 1, self.patience, ack=True)
            server.kill()
            assert await attempt(broker, [message(topic)]) == [None]
            assert await attempt(broker, [message(topic)]) == [None]
            assert await some(member, 1) == []
        await broker.close()
        gc.collect()
        assert [record.message for record in caplog.records if record.exc_info] == []
        await until(lambda: asyncio.all_tasks() <= before)

    async def test_others_see_plain_headers_and_the_id(self, broker, client, topic):
        one = message(topic, "key")
        one.headers["plain"] = "a=b; 100% c"
        await sent(broker, [one])
        raw = await client.jetstream().get_last_msg(OPTIONS["stream"], topic)
        assert raw.headers == {
            "content-type": "application/json",
            "ce-id": str(one.id),
            "plain": "a=b; 100% c",
            "Nats-Msg-Id": str(one.id),
            "postlude-key": "key",
        }


@asynccontextmanager
async def closing(broker):
    try:
        yield broker
    finally:
        await broker.close()


class TestWire:
    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0")))
    def test_any_value_survives_what_nats_does_to_headers(self, value):
        one = message("t", value, headers={"ce_subject": value, "own": value})
        carried = {name: text.strip() for name, text in nats_wire.headers_of(one).items()}
        assert all(text.isascii() for text in carried.values())
        come = nats_wire.received(SimpleNamespace(headers=carried, subject="t", data=b""))
        assert come.key == value
        assert come.headers == one.headers

    def test_a_foreign_message_keeps_its_id(self):
        carried = {"Nats-Msg-Id": "7", "Nats-Pin-Id": "x"}
        come = nats_wire.received(SimpleNamespace(headers=carried, subject="t", data=b""))
        assert come.headers == {"Nats-Msg-Id": "7"}
        assert nats_wire.received(SimpleNamespace(headers=None, subject="t", data=b"")).headers == {}

    @pytest.mark.parametrize("topic", ["", "a b", "a.*", "a.>", "a..b", ".a", "a."])
    def test_what_is_no_subject(self, topic):
        assert not nats_wire.is_subject(topic)
        assert nats_wire.is_subject("events.order.placed")


class TestErrors:
    def test_every_row_of_the_table_gives_its_outcome(self):
        kinds = {Kind.rejected: Rejected, Kind.failed: Failed, Kind.unavailable: Unavailable}
        for error, kind in TABLE.items():
            made = error.__new__(error)
            assert type(outcome_of(made)) is kinds[kind], error

    def test_every_error_of_the_connection_is_in_it(self):
        errors: list[Any] = [each for each in vars(client_errors).values() if isinstance(each, type)]
        unforeseen = {each.__name__ for each in errors if kind_of(each.__new__(each)) is Kind.failed}
        # what publishing cannot meet: subscriptions, arguments, acknowledging
        assert unforeseen == {
            "Error",
            "BadSubscriptionError",
            "BadTimeoutError",
            "InvalidCallbackTypeError",
            "MsgAlreadyAckdError",
            "NotJSMessageError",
        }

    def test_codes(self):
        error = jetstream.ServiceUnavailableError(code=503, err_code=10077)
        assert outcome_of(error) == Unavailable(Fault("ServiceUnavailableError", "nats.10077"))
        assert outcome_of(NoStream("events.x")) == Rejected(Fault("NoStream", "nats.no_stream"))


class TestOptions:
    def test_hosts_and_logins(self):
        assert servers_of("nats://one,two:4333/") == (["nats://one", "nats://two:4333"], {})
        assert servers_of("nats://us%40er:p%3Ass@one")[1] == {"user": "us@er", "password": "p:ss"}
        assert servers_of("nats://t%2Fken@one")[1] == {"token": "t/ken"}
        assert servers_of("nats+tls://one")[1]["tls"].check_hostname
        assert "tls" in servers_of("tls://one")[1]

    @pytest.mark.parametrize("url", ["nats://", "nats://u:secret@host/x", "nats://host?a=1", "tls://host?ca=none"])
    def test_what_is_wrong_is_said_without_secrets(self, url):
        with pytest.raises(BadUrl) as refused:
            servers_of(url)
        assert "secret" not in str(refused.value)

    def test_ours_and_the_client_s(self):
        own, rest = split({"timeout": 3, "subjects": ["a.>"], "name": "me"})
        assert (own.timeout, own.subjects, rest) == (3.0, ("a.>",), {"name": "me"})

    @pytest.mark.parametrize("options", [{"allow_reconnect": True}, {"streem": "x"}, {"timeout": "soon"}])
    def test_what_is_refused(self, options):
        with pytest.raises(ConfigurationError):
            split(options)

    async def test_it_shows_no_password(self):
        assert "secret" not in repr(NatsBroker("nats://user:secret@host"))
