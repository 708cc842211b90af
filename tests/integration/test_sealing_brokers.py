"""Sealed events on their way: to brokers sealed or opened as the route says, and back through consumers."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude import (
    Event,
    KeyRing,
    Postlude,
    Sealed,
    Settings,
    event,
    upcast,
)
from postlude.core.envelope import BrokerMessage
from postlude.core.sealing import HEADER, TOKEN
from postlude.errors import DatabaseUnavailable
from tests.engine import query, until
from tests.sealing import (
    Address,
    SignedUp,
    app_with,
    append,
    dead_codes,
    key_of,
    ring,
    seal_of,
    stored,
    taking,
)

ANN = SignedUp(user_id="u1", email="ann@example.org", homes=(Address("Main 1", "NO"), Address("Main 2", "SE")))
OF_ANN = SignedUp(user_id="u1", email="ann@example.org", person="ann")


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize("keeps_sealed", [True, False])
async def test_brokers_get_it_sealed_unless_the_route_opens_it(
    database_url: str, mode: str, keeps_sealed: bool
) -> None:
    app = app_with(database_url, ring("k1"), brokers={"default": {"url": "memory://", "mode": mode}})
    app.route(SignedUp, open_sealed=not keeps_sealed)
    async with app:
        for one in (ANN, OF_ANN):
            await append(app, one)
        await app.drain()
        messages = app.broker().messages()
    assert len(messages) == 2
    for message in messages:
        assert (b"ann@" in message.payload, HEADER in message.headers) == (not keeps_sealed, keeps_sealed)


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize("keys", [("k1",), ("k2", "k1")])
async def test_a_consumer_with_the_ring_opens_what_came(database: Any, mode: str, keys: tuple[str, ...]) -> None:
    producer = app_with(database.fresh(), ring("k1"), brokers={"default": {"url": "memory://", "mode": mode}})
    consumer = app_with(database.fresh(), ring(*keys))
    got: list[SignedUp] = []
    _consume(producer, consumer, got)
    producer.route(SignedUp)
    async with producer, consumer:
        event_id = await append(producer, msgspec.structs.replace(ANN, person="ann"), subjects=())
        await producer.drain()
        await _consumed(consumer, event_id)
        assert b"ann@" not in (await stored(consumer, event_id)).payload
        await consumer.drain()
    assert [one.email for one in got] == [ANN.email]


async def test_a_consumer_knows_whom_a_whole_sealed_message_speaks_of(database: Any) -> None:
    @event(type="test.told", subjects=("who",), sealed=True)
    class Told(Event):
        who: str

    url = database.fresh()
    producer, consumer = app_with(database.fresh(), ring("k1")), app_with(url, ring("k1"))
    consumer._opened_brokers["default"] = producer.broker()
    producer.route(Told)
    consumer.on(Told, topic="events.test.told", consumer="c", name="h")(taking([]))
    async with producer, consumer:
        event_id = await append(producer, Told(who="ann"), subjects=())
        await producer.drain()
        await _consumed(consumer, event_id)
    ((subjects,),) = await query(url, "SELECT subjects FROM postlude_event")
    assert subjects in (["ann"], '["ann"]')


async def test_whoever_cannot_open_a_message_can_still_redact_whom_it_names(database: Any) -> None:
    url = database.fresh()
    producer, consumer = app_with(database.fresh(), ring("k1")), app_with(url, ring("k1"))
    _consume(producer, consumer, [])
    producer.route(SignedUp)
    async with producer, consumer:
        event_id = await append(producer, OF_ANN)  # sealed with the key of ann, which never leaves the database
        await producer.drain()
        await _consumed(consumer, event_id)
        await consumer.drain()
        (code,) = await dead_codes(consumer, event_id)
        assert "privacy.key_unknown" in code
        redacted = await consumer.privacy.redact("ann", actor="mira", reason="asked by mail")
        assert (redacted.events, redacted.deliveries) == (1, 1)
        assert (await stored(consumer, event_id)).payload == b"{}"


async def test_a_message_waits_for_the_key_service_when_nobody_could_say_whom_it_names(database: Any) -> None:
    @event(type="test.told", subjects=("who",), sealed=True)
    class Told(Event):
        who: str

    is_down = True

    def find(key_id: str) -> bytes:
        if is_down:
            raise OSError
        return key_of(key_id)

    url = database.fresh()
    producer, consumer = app_with(database.fresh(), ring("k1")), app_with(url, KeyRing(find, active="k1"))
    consumer._opened_brokers["default"] = producer.broker()
    producer.route(Told)
    consumer.on(Told, topic="events.test.told", consumer="c", name="h")(taking([]))
    async with producer, consumer:
        event_id = await append(producer, Told(who="ann"), subjects=())
        await producer.drain()
        with pytest.raises(DatabaseUnavailable, match="key ring"):
            await consumer.run_once()
        assert await query(url, "SELECT subjects FROM postlude_event") == []
        is_down = False
        await _consumed(consumer, event_id)
    ((subjects,),) = await query(url, "SELECT subjects FROM postlude_event")
    assert subjects in (["ann"], '["ann"]')


async def test_a_message_that_came_open_is_stored_sealed(database: Any) -> None:
    producer, consumer = app_with(database.fresh(), ring("k1")), app_with(database.fresh(), ring("c1"))
    got: list[SignedUp] = []
    _consume(producer, consumer, got)
    producer.route(SignedUp, open_sealed=True)
    async with producer, consumer:
        event_id = await append(producer, OF_ANN)
        await producer.drain()
        assert b"ann@" in producer.broker().messages()[0].payload
        await _consumed(consumer, event_id)
        assert b"ann@" not in (await stored(consumer, event_id)).payload
        await consumer.drain()
    assert got == [OF_ANN]


async def test_of_several_classes_for_one_type_any_may_seal_and_name_subjects(database_url: str) -> None:
    @event(type="test.signed_up")
    class Brief(Event):
        user_id: str

    app = app_with(database_url, ring("k1"))
    for cls in (Brief, SignedUp):
        app.on(cls, topic="events.test.signed_up", consumer="c", name=cls.__name__.lower())(taking([]))
    async with app:
        await app.broker().publish([_cloud_event(b'{"user_id":"u","email":"ann@x","person":"ann"}')])
        await app.drain()
        ((payload,),) = await query(database_url, "SELECT payload FROM postlude_event")
        assert b"ann@" not in bytes(payload)
        assert (await app.privacy.redact("ann", actor="mira", reason="asked by mail")).events == 1


async def test_an_open_message_about_somebody_shredded_here_is_taken_and_never_opened(database: Any) -> None:
    url = database.fresh()
    producer, consumer = app_with(database.fresh(), ring("k1")), app_with(url, ring("c1"))
    got: list[SignedUp] = []
    for name in ("c", "d"):  # the second finds the event there, and cannot compare it
        consumer.on(SignedUp, topic="events.test.signed_up", consumer=name, name=f"h-{name}")(taking(got))
    consumer._opened_brokers["default"] = producer.broker()
    producer.route(SignedUp, open_sealed=True)
    async with producer, consumer:
        await consumer.privacy.shred("ann", actor="mira", reason="asked by mail")
        event_id = await append(producer, OF_ANN)
        await producer.drain()
        await _consumed(consumer, event_id)
        await consumer.drain()
        assert [("privacy.shredded" in code) for code in await dead_codes(consumer, event_id)] == [True, True]
        assert (await consumer.privacy.redact("ann", actor="mira", reason="asked by mail")).events == 1
    assert got == []
    for (payload,) in await query(url, "SELECT payload FROM postlude_event"):
        assert b"ann" not in bytes(payload)


async def test_a_message_that_cannot_be_taken_is_kept_sealed_and_read_again(database_url: str) -> None:
    """Sealed, it would be larger than allowed; and one that is no CloudEvent at all."""
    app = app_with(database_url, ring("k1"), payload={"max_bytes": 400})
    got: list[SignedUp] = []
    app.on(SignedUp, topic="events.test.signed_up", consumer="c", name="h")(taking(got))
    letter = b'{"user_id":"u","email":"%s"}' % (b"ann@" * 90)
    async with app:
        for headers in ({"x": "1"}, {"x": "2", HEADER: "{}"}):
            message = BrokerMessage(uuid4(), "events.test.signed_up", None, letter, headers)
            await app.broker().publish([message])
        await app.broker().publish([_cloud_event(letter)])
        await app.drain()
        assert [one.email for one in got] == ["ann@" * 90]
        dead = await app.insight.list(status="dead")
        assert [one.destination for one in dead] == ["consumer:c", "consumer:c"]
        for (payload,) in await query(database_url, "SELECT payload FROM postlude_event"):
            assert b"ann@" not in bytes(payload)
        events = [await stored(app, one.event_id) for one in dead]
        assert [one.payload for one in await app.privacy.opened(events)] == [letter, letter]
        ids = [one.event_id for one in dead]
        assert await app.actions.requeue(ids, actor="mira", reason="again") == ids
        await app.drain()
        assert {str(one.error).partition(" ")[0] for one in await app.insight.list(status="dead")} == {"Unreadable"}


def _cloud_event(payload: bytes) -> BrokerMessage:
    headers = {"ce_id": str(uuid4()), "ce_type": "test.signed_up", "ce_source": "s", "ce_specversion": "1.0"}
    return BrokerMessage(uuid4(), "events.test.signed_up", None, payload, headers)


@pytest.mark.parametrize(
    ("version", "payload", "mails"), [(1, b'{"mail":"ann@x"}', ["ann@x"]), (2, b'{"email":"ann@x", and no JSON', [])]
)
async def test_what_the_class_does_not_know_is_sealed_whole(
    database_url: str, version: int, payload: bytes, mails: list[str]
) -> None:
    @event(type="test.mailed", version=2)
    class Mailed(Event):
        email: Annotated[str, Sealed()]

    @upcast(Mailed, 1)
    def renamed(old: dict[str, Any]) -> dict[str, Any]:
        return {"email": old["mail"]}

    app, event_id = app_with(database_url, ring("k1")), uuid4()
    got: list[Any] = []
    app.on(Mailed, topic="mails", consumer="c", name="h")(taking(got))
    says = {
        "specversion": "1.0",
        "id": str(event_id),
        "type": "test.mailed",
        "source": "x",
        "dataversion": str(version),
    }
    headers = {"content-type": "application/json"} | {f"ce_{name}": value for name, value in says.items()}
    async with app:
        await app.broker().publish([BrokerMessage(event_id, "mails", None, payload, headers)])
        await _consumed(app, event_id)
        assert b"ann@" not in (await stored(app, event_id)).payload
        assert (await seal_of(app, event_id)).paths == ("",)
        await app.drain()
        assert (await app.insight.counts())["dead"] == (not mails)
    assert [one.email for one in got] == mails


@pytest.mark.parametrize(
    ("said", "email"),
    [
        ("no JSON", "ann@x"),
        ('{"scheme":1,"key":"k1","paths":["/email"]}', "ann@x"),
        ('{"scheme":1,"key":"k1","paths":["/gone"]}', "ann@x"),
        ('{"scheme":1,"key":"k1","paths":["/user_id"]}', "ann@x"),
        ('{"scheme":1,"key":"k1","paths":["/email"],"within":"x"}', "sealed:YWE="),
    ],
)
async def test_a_message_whose_header_lies_is_stored_sealed_and_dies(database_url: str, said: str, email: str) -> None:
    app, event_id = app_with(database_url, ring("k1")), uuid4()
    got: list[Any] = []
    app.on(SignedUp, topic="mails", consumer="c", name="h")(taking(got))
    payload = msgspec.json.encode({"user_id": "u1", "email": email})
    says = {"specversion": "1.0", "id": str(event_id), "type": "test.signed_up", "source": "x", "dataversion": "1"}
    headers = {"content-type": "application/json", HEADER: said} | {f"ce_{name}": it for name, it in says.items()}
    async with app:
        for _ in range(2):  # again, and it is the same
            await app.broker().publish([BrokerMessage(event_id, "mails", None, payload, headers)])
            await _consumed(app, event_id)
        kept = await stored(app, event_id)
        assert kept.payload.startswith(b'"' + TOKEN.encode())
        assert (await seal_of(app, event_id)).paths == ("",)
        await app.drain()
        (code,) = await dead_codes(app, event_id)
        assert "privacy.broken_seal" in code
        assert (await app.privacy.opened([kept]))[0].payload == kept.payload, "nobody takes it for open"
    async with app_with(database_url, ring("k2", "k1")) as later:
        operation = await later.privacy.rotate()
        assert (operation.done, operation.total) == (1, 1)
        assert (await seal_of(later, event_id)).within == said
    assert got == []


async def test_a_message_that_seals_less_than_the_class_here_is_sealed_whole_and_handled(database: Any) -> None:
    @event(type="test.signed_up", key="user_id")
    class SealsLess(Event):
        user_id: str
        email: str
        homes: tuple[Address, ...]

    producer, consumer = app_with(database.fresh(), ring("k1")), app_with(database.fresh(), ring("k2", "k1"))
    got: list[SignedUp] = []
    _consume(producer, consumer, got)
    producer.route(SealsLess)
    async with producer, consumer:
        event_id = await append(producer, SealsLess(user_id="u1", email=ANN.email, homes=ANN.homes))
        await producer.drain()
        assert b"ann@" in producer.broker().messages()[0].payload
        await _consumed(consumer, event_id)
        assert b"ann@" not in (await stored(consumer, event_id)).payload
        await consumer.drain()
    assert got == [ANN]


@pytest.mark.parametrize("opens", [True, False])
async def test_what_comes_back_to_its_own_database_is_the_same_event(database_url: str, opens: bool) -> None:
    app = app_with(database_url, ring("k1"))
    got: list[SignedUp] = []
    app.route(SignedUp, open_sealed=opens)
    app.on(SignedUp, topic="events.test.signed_up", consumer="c", name="h")(taking(got))
    async with app:
        event_id = await append(app, OF_ANN)
        ring_sealed = await append(app, ANN)
        await app.drain()
        await _consumed(app, event_id)
        await _consumed(app, ring_sealed)
        await app.drain()
        assert (await app.insight.counts())["dead"] == 0
    assert got == [OF_ANN, ANN]


async def test_a_real_broker_carries_the_seal(sqlite_database: Any, rabbitmq_url: str) -> None:
    topic = f"sealed-{uuid4().hex}"
    settings = Settings.load(environ={})
    producer, consumer = (
        Postlude(sqlite_database.fresh(), broker=rabbitmq_url, settings=settings, keys=ring("k1")) for _ in range(2)
    )
    got: list[SignedUp] = []
    producer.route(SignedUp, topic=topic)
    consumer.on(SignedUp, topic=topic, consumer=f"c-{topic}", name="h")(taking(got))
    async with producer, consumer:
        await consumer.drain()  # from now on it has its queue
        await append(producer, ANN)
        await producer.drain()
        async with consumer.worker():
            await until(lambda: got == [ANN])


def _consume(producer: Postlude, consumer: Postlude, got: list[Any]) -> None:
    consumer._opened_brokers["default"] = producer.broker()
    consumer.on(SignedUp, topic="events.test.signed_up", consumer="c", name="h")(taking(got))


async def _consumed(consumer: Postlude, event_id: UUID) -> None:
    async def is_there() -> bool:
        return any(one.event_id == event_id for one in await consumer.insight.inbox())

    async with consumer.worker():
        await until(is_there)
