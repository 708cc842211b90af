"""What becomes of messages that cannot be taken as they are: each has a declared outcome, none is lost or in the way."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude import Context, Event, Message, Postlude, Received, event, upcast
from postlude.core.envelope import BrokerMessage
from tests.consuming import (
    ONE_OF_EACH,
    Unreliable,
    booked,
    counted,
    noted,
    open_books,
    raw,
    seen,
    service,
    write,
)
from tests.databases import Databases
from tests.engine import Noted, make_app, query, until

HOUR = 3600.0
MALFORMED = b'\x00\xff{"n": 0'


@pytest.fixture
def broker() -> Unreliable:
    return Unreliable(reads=False)


@pytest.fixture(params=ONE_OF_EACH)
async def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    made = databases_on(request.param).fresh()
    await open_books(made)
    return made


@pytest.fixture
async def app(url: str, broker: Unreliable) -> AsyncIterator[Postlude]:
    async with service(url, broker) as app:
        yield app


async def dead(app: Postlude) -> list[Any]:
    return list((await app.insight.list(status="dead")).items)


async def the_dead(app: Postlude) -> Any:
    (found,) = await dead(app)
    return found


async def requeue(app: Postlude) -> None:
    """Every dead letter, and deliver what comes of it."""
    ids = [one.event_id for one in await dead(app)]
    assert await app.actions.requeue(ids, actor="ann", reason="mended") == ids
    await app.drain()


# ---------------------------------------------------------------- unreadable


@pytest.mark.parametrize(
    "message",
    [
        raw(MALFORMED),
        raw(b""),
        raw(b'{"specversion": "1.0"}'),
        noted(0, ce_specversion="2.0"),
        noted(0, ce_dataversion="first"),
        noted(0, ce_time="yesterday"),
        noted(0, key="x" * 5000),
        noted(0, ce_id=""),
        noted(0, tenant="a\0b"),
    ],
    ids=["bytes", "nothing", "incomplete", "spec", "version", "time", "key", "id", "nul"],
)
async def test_what_is_no_event_is_a_dead_letter_and_the_others_go_on(
    app: Postlude, url: str, broker: Unreliable, message: Any
) -> None:
    await broker.publish([noted(1), message, noted(2)])
    await app.drain()
    assert await booked(url) == [1, 2]
    letter = await the_dead(app)
    assert (letter.destination, letter.type) == ("consumer:billing", "postlude.unreadable")
    assert "Unreadable" in letter.error
    story = await app.insight.event(letter.event_id)
    assert (story.event.payload, story.event.topic) == (message.payload, "noted")
    assert story.event.headers["postlude-reason"]
    view = await counted(app)
    assert (view.received, view.unreadable, view.dead, view.lag) == (3, 1, 1, 0)


async def test_an_unreadable_message_that_comes_again_is_one_dead_letter(
    app: Postlude, url: str, broker: Unreliable
) -> None:
    broker.loses_acks = True
    await broker.publish([raw(MALFORMED)])
    await app.run_once()
    broker.loses_acks = False
    await app.drain()
    assert len(await dead(app)) == 1
    view = await counted(app)
    assert (view.received, view.duplicates, view.unreadable) == (2, 1, 1)


async def test_two_unreadable_messages_that_say_the_same_are_two(app: Postlude, broker: Unreliable) -> None:
    await broker.publish([raw(b"tick"), raw(b"tick")])
    await app.drain()
    assert len(await dead(app)) == 2


async def test_one_that_is_still_unreadable_is_a_dead_letter_again(app: Postlude, broker: Unreliable) -> None:
    await broker.publish([raw(MALFORMED)])
    await app.drain()
    before = await the_dead(app)
    await requeue(app)
    after = await the_dead(app)
    assert (after.event_id, after.destination) == (before.event_id, "consumer:billing")
    await app.actions.discard([after.event_id], actor="ann", reason="nonsense")
    assert await dead(app) == []


async def test_too_large_is_a_dead_letter_until_there_is_room(url: str, broker: Unreliable) -> None:
    large = noted(7, key="k" * 100)
    async with service(url, broker, payload={"max_bytes": 100}) as app:
        await broker.publish([large, noted(1)])
        await app.drain()
        assert await booked(url) == [1]
        assert "PayloadTooLarge" in (await the_dead(app)).error
    async with service(url, broker) as app:
        await requeue(app)
        assert await booked(url) == [1, 7]
        await broker.publish([large])
        await app.drain()
        assert await booked(url) == [1, 7]
        assert await dead(app) == []


# ---------------------------------------------------------------- unknown, newer, conflicting


async def test_an_unknown_type_is_ignored_counted_and_told_once(
    app: Postlude, url: str, broker: Unreliable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postlude.consumer")
    async with app.worker():
        await broker.publish([noted(n, ce_type="test.other") for n in range(3)])
        await broker.publish([noted(1)])
        await _until_booked(url, [1])
        await broker.publish([noted(4, ce_type="test.other"), noted(2)])
        await _until_booked(url, [1, 2])
    view = await counted(app)
    assert (view.received, view.ignored, view.unreadable, view.dead) == (6, 4, 0, 0)
    told = [record.getMessage() for record in caplog.records if "ignores" in record.getMessage()]
    assert told == ["billing ignores test.other from noted: it has no handler for it"]
    assert await seen(url) == 2


async def test_an_unknown_type_is_a_dead_letter_where_that_is_asked_for(url: str, broker: Unreliable) -> None:
    settings = {"consumer": {"unknown": "dead"}}
    async with service(url, broker, **settings) as app:
        await broker.publish([noted(7, ce_type="test.renamed")])
        await app.drain()
        assert "UnknownEvent" in (await the_dead(app)).error

    @event(type="test.renamed", key="key")
    class Renamed(Event):
        key: str
        n: int

    async with service(url, broker, **settings) as app:

        @app.on(Renamed, topic="noted", consumer="billing")
        async def book_renamed(renamed: Renamed, ctx: Context) -> None:
            await write(ctx.tx, "billing", Noted(key=renamed.key, n=renamed.n))

        await requeue(app)
        assert await booked(url) == [7]
        assert await dead(app) == []


async def test_a_newer_version_waits_at_its_handler_for_newer_code(url: str, broker: Unreliable) -> None:
    message = noted(7, ce_dataversion="2")
    async with service(url, broker) as app:
        await broker.publish([message, noted(8)])
        await app.drain()
        letter = await the_dead(app)
        assert letter.destination == "handler:billing_books"
        assert "NewerVersion" in letter.error
        assert await booked(url) == [8]

    deployed = _newer_service(url, broker)
    async with deployed as app:
        await requeue(app)
        assert await booked(url) == [8, 7]
        await broker.publish([message])
        await app.drain()
        assert await booked(url) == [8, 7]


def _newer_service(url: str, broker: Unreliable) -> Postlude:
    @event(type="test.noted", version=2, key="key")
    class NotedAgain(Event):
        key: str
        n: int

    @upcast(NotedAgain, 1)
    def v1(old: dict[str, Any]) -> dict[str, Any]:
        return old

    app = make_app(url)
    app._opened_brokers["default"] = broker

    @app.on(NotedAgain, name="billing_books", topic="noted", consumer="billing")
    async def book(note: NotedAgain, ctx: Context) -> None:
        await write(ctx.tx, "billing", Noted(key=note.key, n=note.n))

    return app


async def test_an_id_under_which_something_else_is_stored_is_a_dead_letter(url: str, broker: Unreliable) -> None:
    async with service(url, broker, "billing") as app:
        app.route(Noted, to="other")
        async with app.transaction() as tx:
            event_id = await app.outbox.append(tx, Noted(key="k", n=1))
        await app.drain()
        await broker.publish([noted(2, id=event_id), noted(3)])
        await app.drain()
        letter = await the_dead(app)
        assert letter.destination == "consumer:billing"
        assert "IdConflict" in letter.error
        assert await booked(url) == [3]
        assert (await app.insight.event(event_id)).event.payload == b'{"key":"k","n":1}'


async def test_two_of_one_id_in_a_batch_that_differ_are_told_apart(app: Postlude, url: str, broker: Unreliable) -> None:
    event_id = uuid4()
    await broker.publish([noted(1, id=event_id), noted(2, id=event_id)])
    await app.drain()
    assert await booked(url) == [1]
    assert "IdConflict" in (await the_dead(app)).error


async def test_an_id_from_the_future_is_a_dead_letter(app: Postlude, url: str, broker: Unreliable) -> None:
    ahead = UUID(int=(0xFFFF_FFFF_FFFF << 80) | (7 << 76) | (2 << 62))
    await broker.publish([noted(1, id=ahead), noted(2)])
    await app.drain()
    assert "InvalidId" in (await the_dead(app)).error
    assert await booked(url) == [2]


# ---------------------------------------------------------------- older than the inbox remembers


async def test_what_the_inbox_may_have_forgotten_is_a_dead_letter(url: str, broker: Unreliable) -> None:
    settings = {"inbox": {"retention_hours": 2, "replay_window_hours": 2}}
    now = datetime.now(UTC)
    async with service(url, broker, **settings) as app:
        old = noted(1, ce_time=(now - timedelta(hours=3)).isoformat())
        await broker.publish([old])
        await app.drain()
        assert await booked(url) == [1]  # a consumer that is younger than that has forgotten nothing

        app.clock.advance(4 * HOUR)
        young = noted(2, ce_time=(now + timedelta(hours=3)).isoformat())
        await broker.publish([old, young])
        await app.drain()
        assert await booked(url) == [1, 2]
        assert "BeyondWindow" in (await the_dead(app)).error

        await requeue(app)  # a person has looked: the inbox still knows this one
        assert await booked(url) == [1, 2]
        assert await dead(app) == []


async def test_an_inbox_that_never_forgets_takes_what_is_old(url: str, broker: Unreliable) -> None:
    async with service(url, broker, inbox={"retention_hours": 0, "replay_window_hours": 0}) as app:
        await broker.publish([noted(1)])
        await app.drain()
        app.clock.advance(2000 * HOUR)
        await broker.publish([noted(2, ce_time="2001-01-01T00:00:00Z")])
        await app.drain()
        assert await booked(url) == [1, 2]


# ---------------------------------------------------------------- foreign


def tolerant(app: Postlude) -> None:
    """`tick N`: an event; `named N`: with an id and a key; `hush`: nothing; anything else raises."""

    @app.foreign("noted")
    def read(received: Received) -> Any:
        word, _, n = received.payload.decode().partition(" ")
        if word == "hush":
            return None
        note = Noted(key="k", n=int(n))
        return Message(note, id=f"note-{n}", key="other") if word == "named" else note


async def test_a_mapping_makes_events_of_foreign_messages(app: Postlude, url: str, broker: Unreliable) -> None:
    tolerant(app)
    await broker.publish([raw(b"tick 1"), raw(b"named 2"), raw(b"hush"), raw(b"tick 1")])
    await app.drain()
    assert sorted(await booked(url)) == [1, 1, 2]  # two ticks are two messages
    keys = await query(url, "SELECT DISTINCT key FROM postlude_event ORDER BY key")
    assert keys == [("k",), ("other",)]
    view = await counted(app)
    assert (view.received, view.ignored, view.duplicates) == (4, 1, 0)


async def test_an_id_of_a_foreign_message_makes_it_one(app: Postlude, url: str, broker: Unreliable) -> None:
    tolerant(app)
    await broker.publish([raw(b"named 2"), raw(b"named 2")])
    await app.drain()
    await broker.publish([raw(b"named 2")])
    await app.drain()
    assert await booked(url) == [2]
    assert (await counted(app)).duplicates == 2


async def test_a_position_identifies_a_foreign_message_without_an_id(
    app: Postlude, url: str, broker: Unreliable
) -> None:
    tolerant(app)
    broker.loses_acks = True
    await broker.publish([raw(b"tick 1")])
    await app.run_once()
    broker.loses_acks = False
    await app.drain()
    assert await booked(url) == [1]
    assert (await counted(app)).duplicates == 1


async def test_a_mapping_that_raises_leaves_a_dead_letter_until_it_is_mended(
    app: Postlude, url: str, broker: Unreliable
) -> None:
    tolerant(app)
    await broker.publish([raw(b"odd 7", key="k"), raw(b"what?"), raw(b"tick 2")])
    await app.drain()
    assert sorted(await booked(url)) == [2, 7]
    letter = await the_dead(app)
    story = await app.insight.event(letter.event_id)
    assert story.event.headers["postlude-reason"] == "the mapping of noted failed with ValueError"

    async with service(url, broker) as mended:

        @mended.foreign("noted")
        def read(received: Received) -> Noted:
            return Noted(key="k", n=len(received.payload))

        await requeue(mended)
        assert sorted(await booked(url)) == [2, 5, 7]
        assert await dead(mended) == []


async def test_a_message_that_comes_again_after_its_mapping_was_mended_has_one_effect(
    app: Postlude, url: str, broker: Unreliable
) -> None:
    """The dead letter and what the broker delivers again are the same message."""
    broker.loses_acks = True
    await broker.publish([raw(b"tick 1")])
    await app.run_once()
    broker.loses_acks = False
    async with service(url, broker) as mended:
        tolerant(mended)
        await mended.drain()
        assert await booked(url) == [1]
        await requeue(mended)
        assert await booked(url) == [1]


async def test_a_mapping_must_say_who_a_message_is_where_the_broker_does_not(
    app: Postlude, url: str, broker: Unreliable
) -> None:
    broker.numbers = False
    tolerant(app)
    await broker.publish([raw(b"tick 1"), raw(b"named 2")])
    await app.drain()
    assert await booked(url) == [2]
    story = await app.insight.event((await the_dead(app)).event_id)
    assert story.event.headers["postlude-reason"] == "a message from noted has no identity"


async def test_a_mapping_that_gives_no_event_leaves_a_dead_letter(app: Postlude, url: str, broker: Unreliable) -> None:
    app.foreign("noted")(lambda received: {"n": 1})
    await broker.publish([raw(b"x")])
    await app.drain()
    assert "UnknownEvent" in (await the_dead(app)).error


# ---------------------------------------------------------------- refused by the database


async def test_one_that_the_database_refuses_keeps_no_other_away(app: Postlude, url: str, broker: Unreliable) -> None:
    scripts: Any = app.store.scripts
    poison = uuid4()
    receive = scripts.receive

    def refusing(taken: Any) -> Any:
        if poison in {one.event_id for one in taken.events}:
            raise ValueError("a trigger of the user's own")
        return receive(taken)

    scripts.receive = refusing
    await broker.publish([noted(1), noted(2, id=poison), noted(3)])
    await app.drain()
    assert await booked(url) == [1, 3]
    letter = await the_dead(app)
    story = await app.insight.event(letter.event_id)
    assert story.event.headers["postlude-reason"] == "the database refuses the message: ValueError"
    assert (await counted(app)).lag == 0

    scripts.receive = receive
    await requeue(app)
    assert await booked(url) == [1, 3, 2]
    await broker.publish([noted(2, id=poison)])
    await app.drain()
    assert await booked(url) == [1, 3, 2]


@event(type="test.about", key="who", subjects=("who",))
class About(Event):
    who: str
    n: int


async def test_what_no_database_can_hold_is_a_dead_letter_wherever_it_stands(
    any_postgres_url: str, broker: Unreliable
) -> None:
    """PostgreSQL stores no NUL in a text, and a payload may have one where its key and subjects are."""
    app, handled = make_app(any_postgres_url), []
    app._opened_brokers["default"] = broker

    @app.on(About, topic="noted", consumer="billing")
    async def handle(about: About) -> None:
        handled.append(about.n)

    def about(n: int, who: str, key: str) -> BrokerMessage:
        return raw(json.dumps({"who": who, "n": n}).encode(), **noted(n, key, ce_type="test.about").headers)

    async with app:
        await broker.publish([about(1, "ann", "k"), about(2, "b\0b", "k"), about(3, "c\0c", ""), about(4, "dan", "")])
        await app.drain()
        assert sorted(handled) == [1, 4]
        errors = sorted((one.destination, one.error.partition(" ")[0]) for one in await dead(app))
        assert errors == [("consumer:billing", "InvalidKey"), ("consumer:billing", "Unreadable")]


async def _until_booked(url: str, expected: list[int]) -> None:
    async def are_booked() -> bool:
        return await booked(url) == expected

    await until(are_booked)
