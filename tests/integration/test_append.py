"""Appending: an event joins the caller's transaction, with everything that can be said of it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import aiosqlite
import attrs
import msgspec
import pydantic
import pytest

from postlude import Context, Event, Message, event
from tests.engine import Noted, connect, held, make_app, note, published, query, routed_app

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@event(type="test.loose", topic="loose")
class Loose(Event):
    """Has no key, so it may have a priority."""

    n: int


@event(key="id", entity="thing", subjects=("owner", "tenant"))
@dataclass
class DataThing:
    id: int
    owner: str
    tenant: str | None = None


@event(key="id")
@attrs.frozen
class AttrsThing:
    id: UUID


@event(key="id")
class PydanticThing(pydantic.BaseModel):
    id: str
    tags: list[str] = []


async def finish(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer


async def stored(url: str, column: str) -> list[Any]:
    return [row[0] for row in await query(url, f"SELECT {column} FROM postlude_event ORDER BY created_at, event_id")]


async def test_an_append_commits_with_the_callers_own_handle(database_url: str) -> None:
    app = routed_app(database_url)
    async with held(database_url) as caller:
        await finish(caller.connection.execute("CREATE TABLE orders (id integer)"))
        await app.outbox.append(caller.connection, Noted(key="k", n=1))
        assert await stored(database_url, "type") == []
        await caller.commit()
    assert await app.drain() == 1
    assert published(app) == [1]
    await app.close()


async def test_an_append_rolls_back_with_the_callers_own_handle(database_url: str) -> None:
    app = routed_app(database_url)
    async with held(database_url) as caller:
        await app.outbox.append(caller.connection, Noted(key="k", n=1))
        await caller.rollback()
    assert await app.drain() == 0
    assert await stored(database_url, "type") == []
    await app.close()


async def test_an_aiosqlite_handle_may_append(sqlite_url: str) -> None:
    app = routed_app(sqlite_url)
    async with aiosqlite.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        await connection.execute("CREATE TABLE orders (id integer)")
        await app.outbox.append_many(connection, [Noted(key="k", n=1), Noted(key="k", n=2)])
        await connection.commit()
    assert await app.drain() == 2
    assert published(app) == [1, 2]
    await app.close()


async def test_a_plain_sqlite3_connection_that_begins_by_itself(sqlite_url: str) -> None:
    import sqlite3

    app = routed_app(sqlite_url)
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    await app.outbox.append(connection, Noted(key="k", n=1))
    assert connection.in_transaction
    connection.commit()
    connection.close()
    assert await app.drain() == 1
    await app.close()


async def test_many_are_delivered_in_the_order_given(database_url: str) -> None:
    app = routed_app(database_url)
    async with app.transaction() as tx:
        ids = await app.outbox.append_many(tx, [Noted(key=f"k{n % 3}", n=n) for n in range(50)])
        assert await app.outbox.append_many(tx, []) == []
    assert len(set(ids)) == 50
    await app.drain()
    for key in ("k0", "k1", "k2"):
        assert published(app, key) == [n for n in range(50) if f"k{n % 3}" == key]
    await app.close()


async def test_the_same_event_again_is_nothing_new(database_url: str) -> None:
    app = routed_app(database_url)
    given = uuid4()
    async with app.transaction() as tx:
        first = await app.outbox.append_many(tx, [Message(Noted(key="k", n=1), id=given)] * 2)
    async with app.transaction() as tx:
        again = await app.outbox.append(tx, Noted(key="k", n=1), id=str(given))
    assert [*first, again] == [given] * 3
    assert await app.drain() == 1
    async with app.transaction() as tx:
        assert await app.outbox.append(tx, Noted(key="k", n=1), id=given) == given
    assert await app.drain() == 0
    await app.close()


async def test_a_delayed_event_waits_and_does_not_hold_its_key(database_url: str) -> None:
    app = routed_app(database_url)
    async with app.transaction() as tx:
        later = datetime.now(UTC) + timedelta(hours=2)
        await app.outbox.append(tx, Noted(key="k", n=1), available_at=later)
        await app.outbox.append(tx, Noted(key="k", n=2))
    assert await app.drain() == 1
    assert (await app.insight.counts())["scheduled"] == 1
    app.clock.advance(7300)
    assert await app.drain() == 1
    assert published(app) == [2, 1]
    await app.close()


async def test_high_goes_first_and_low_still_gets_a_tenth(database_url: str) -> None:
    app = make_app(database_url, relay={"batch_size": 20}, lanes=None)
    app.route(Loose)
    batches: list[list[int]] = []
    broker = app.broker()
    publish = broker.publish

    async def note_batch(messages: Any) -> Any:
        batches.append([msgspec.json.decode(message.payload)["n"] for message in messages])
        return await publish(messages)

    broker.publish = note_batch
    async with app.transaction() as tx:
        for priority, start in (("low", 0), ("normal", 1000), ("high", 2000)):
            messages = [Message(Loose(n=start + n), priority=priority) for n in range(100)]  # type: ignore[arg-type]
            await app.outbox.append_many(tx, messages)
    assert await app.drain() == 300
    full = [batch for batch in batches if len(batch) == 20]
    first = next(batch for batch in full if sum(n >= 2000 for n in batch) >= 10)
    assert sum(n < 1000 for n in first) >= 2
    order = [n for batch in batches for n in batch]
    assert sum(order.index(2000 + n) for n in range(100)) < sum(order.index(1000 + n) for n in range(100))
    await app.close()


async def test_every_kind_of_class_can_be_an_event(database_url: str) -> None:
    app = make_app(database_url)
    got: list[Any] = []
    for cls in (DataThing, AttrsThing, PydanticThing):
        app.route(cls)

        async def handle(thing: Any) -> None:
            got.append(thing)

        app.on(cls, name=cls.__name__)(handle)
    things = [DataThing(id=7, owner="ann"), AttrsThing(id=uuid4()), PydanticThing(id="p", tags=["a"])]
    async with app.transaction() as tx:
        await app.outbox.append_many(tx, things)
    assert await app.drain() == 6
    assert sorted(map(repr, got)) == sorted(map(repr, things))
    assert {message.headers["ce_type"] for message in app.broker().messages()} == {
        "data.thing",
        "attrs.thing",
        "pydantic.thing",
    }
    (about,) = (message for message in app.broker().messages("events.data.thing"))
    assert (about.key, about.headers["ce_subject"]) == ("7", "thing/7")
    await app.close()


async def test_data_subjects_are_stored_and_can_be_found(database_url: str) -> None:
    app = make_app(database_url)
    app.route(DataThing)
    async with app.transaction() as tx:
        await app.outbox.append(tx, DataThing(id=1, owner="ann", tenant="acme"))
        await app.outbox.append(tx, DataThing(id=2, owner="bob"))
        await app.outbox.append(tx, DataThing(id=3, owner="bob"), subjects=["carl"])
    if app.store.dialect == "sqlite":
        found = await query(database_url, "SELECT subject FROM postlude_event_subject ORDER BY subject")
    else:
        found = await query(database_url, "SELECT unnest(subjects) AS s FROM postlude_event ORDER BY s")
    assert [row[0] for row in found] == ["acme", "ann", "bob", "carl"]
    await app.close()


async def test_headers_and_ids_travel_with_the_message(database_url: str) -> None:
    app = routed_app(database_url)
    cause = uuid4()
    async with app.transaction() as tx:
        given = await app.outbox.append(
            tx,
            Noted(key="k", n=1),
            headers={"Tenant": "acme", "traceparent": TRACE},
            correlation_id="c-1",
            causation_id=cause,
            topic="elsewhere",
        )
    await app.drain()
    (message,) = app.broker().messages("elsewhere")
    assert message.id == given
    assert message.headers["ce_id"] == str(given)
    assert message.headers["ce_specversion"] == "1.0"
    assert message.headers["tenant"] == "acme"
    assert message.headers["traceparent"] == TRACE
    assert message.headers["ce_correlationid"] == "c-1"
    assert message.headers["ce_causationid"] == str(cause)
    assert message.headers["content-type"] == "application/json"
    await app.close()


async def test_the_append_chooses_the_topic_before_the_route_and_the_route_before_the_class(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Noted, topic="routed")
    app.route("*", topic="everything")
    app.route(Loose, to="other")
    app.route("*", to="other", topic="everything")
    async with app.transaction() as tx:
        await app.outbox.append_many(tx, [Noted(key="k", n=1), Message(Noted(key="k", n=2), topic="said"), Loose(n=3)])
    await app.drain()
    topics = {name: {topic for topic, got in app.broker(name).topics.items() if got} for name in ("default", "other")}
    assert topics == {"default": {"routed", "said", "everything"}, "other": {"everything", "said", "loose"}}
    await app.close()


async def test_correlation_and_trace_follow_from_event_to_event(database_url: str) -> None:
    app = routed_app(database_url)

    @app.on(Noted)
    async def answer(noted: Noted, ctx: Context) -> None:
        if noted.n == 1:
            await ctx.append(Noted(key="k", n=2))

    async with app.transaction() as tx:
        first = await app.outbox.append(tx, Noted(key="k", n=1))
    await app.drain()
    story = await app.insight.event(first)
    assert story.event.correlation_id == str(first)
    (caused,) = story.caused
    second = await app.insight.event(caused)
    assert (second.event.causation_id, second.event.correlation_id) == (first, str(first))
    one, two = (each.event.headers["traceparent"] for each in (story, second))
    assert one.split("-")[1] == two.split("-")[1]
    assert one.split("-")[2] != two.split("-")[2]
    await app.close()


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_callers_of_any_isolation_level_append_in_order(postgres_url: str, isolation: str) -> None:
    app = routed_app(postgres_url)
    async with held(postgres_url, f"BEGIN ISOLATION LEVEL {isolation}") as caller:
        await caller.connection.fetch("SELECT 1")
        await note(app, "k", 1)
        await app.outbox.append(caller.connection, Noted(key="k", n=2))
        await caller.commit()
    await app.drain()
    assert published(app) == [1, 2]
    await app.close()


async def test_a_record_only_event_is_kept_and_goes_nowhere(database_url: str) -> None:
    @event(type="test.kept", record_only=True)
    class Kept(Event):
        n: int

    app = make_app(database_url)
    async with app.transaction() as tx:
        given = await app.outbox.append(tx, Kept(n=1))
    assert await app.drain() == 0
    story = await app.insight.event(given)
    assert (story.deliveries, story.receipts) == ([], [])
    assert msgspec.json.decode(story.event.payload) == {"n": 1}
    await app.close()


async def test_an_entry_may_have_fewer_attempts_than_others(database_url: str) -> None:
    app = make_app(database_url, retry={"base_delay_seconds": 0, "max_attempts": 5})
    attempts: list[int] = []

    @app.on(Noted)
    async def never(noted: Noted, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise RuntimeError

    async with app.transaction() as tx:
        await app.outbox.append(tx, Noted(key="k", n=1), max_attempts=2)
    await app.drain()
    assert attempts == [1, 2]
    assert (await app.insight.counts())["dead"] == 1
    await app.close()


async def test_a_connection_of_ones_own_learns_the_lanes_once(database_url: str) -> None:
    app = routed_app(database_url)
    handle = await connect(database_url)
    for n in (1, 2):
        await finish(handle.execute("BEGIN"))
        await app.outbox.append(handle, Noted(key="k", n=n))
        await finish(handle.execute("COMMIT"))
    await finish(handle.close())
    assert app.lanes == 64
    assert await app.drain() == 2
    await app.close()
