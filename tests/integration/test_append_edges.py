"""Appending, the edges: savepoints, races for an id, options of one among many, what exactly is stored."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import asyncpg
import msgspec
import pytest

from postlude import (
    ConfigurationError,
    Context,
    Event,
    IdConflict,
    InvalidKey,
    Message,
    NotEncodable,
    Postlude,
    event,
)
from tests.databases import Databases
from tests.engine import Noted, held, make_app, published, query, routed_app

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@event(type="test.told", subjects=("person", "friend"), entity="person")
class Told(Event):
    """Without a key, about people."""

    n: int
    person: str | None = None
    friend: str | None = None


@pytest.fixture
def app(database_url: str) -> Postlude:
    made = routed_app(database_url)
    made.route(Told)
    return made


def told(app: Postlude) -> list[int]:
    return [msgspec.json.decode(message.payload)["n"] for message in app.broker().messages()]


async def _execute(tx: Any, statement: str) -> None:
    done = tx.execute(statement)
    if not isinstance(tx, sqlite3.Connection):
        await done


async def test_a_savepoint_that_is_rolled_back_takes_its_appends_along(app: Postlude, database_url: str) -> None:
    async with app, held(database_url) as caller:
        tx = caller.connection
        await app.outbox.append(tx, Noted(key="a", n=1))
        await _execute(tx, "SAVEPOINT here")
        await app.outbox.append(tx, Noted(key="a", n=2))
        await _execute(tx, "ROLLBACK TO here")
        await app.outbox.append(tx, Noted(key="a", n=3))
        await caller.commit()
        await app.drain()
        assert published(app) == [1, 3]


async def test_an_asyncpg_savepoint_that_raises_takes_its_appends_along(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with app:
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="a", n=1))
            with pytest.raises(ZeroDivisionError):
                async with tx.transaction():
                    await app.outbox.append(tx, Noted(key="a", n=2))
                    raise ZeroDivisionError
        await app.drain()
        assert published(app) == [1]


async def test_a_connection_of_a_pool_is_joined_too(postgres_url: str) -> None:
    app = routed_app(postgres_url)
    async with app, asyncpg.create_pool(postgres_url, min_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            await app.outbox.append(connection, Noted(key="a", n=1))
        await app.drain()
        assert published(app) == [1]


async def test_an_app_that_never_connected_appends_in_the_lanes_that_were_installed(database: Databases) -> None:
    url = database.fresh(schema=False)
    installer = make_app(url, lanes=4)
    await installer.db.upgrade()
    await installer.close()
    app = routed_app(url)
    async with held(url) as caller:
        await app.outbox.append_many(caller.connection, [Noted(key=f"k{n}", n=n) for n in range(20)])
        await caller.commit()
    lanes = {row[0] for row in await query(url, "SELECT lane FROM postlude_delivery")}
    assert lanes <= {0, 1, 2, 3}
    async with app:
        await app.drain()
        assert sorted(published(app)) == list(range(20))


async def test_nothing_to_append_is_nothing(app: Postlude, database_url: str) -> None:
    async with app:
        async with app.transaction() as tx:
            assert await app.outbox.append_many(tx, []) == []
        assert await query(database_url, "SELECT count(*) FROM postlude_event") == [(0,)]


async def test_each_of_many_may_have_options_of_its_own(app: Postlude) -> None:
    async with app:
        async with app.transaction() as tx:
            mine = uuid4()
            ids = await app.outbox.append_many(
                tx,
                [
                    Noted(key="a", n=1),
                    Message(Noted(key="a", n=2), id=mine, topic="elsewhere", key="b", headers={"x": "y"}),
                    Message(Told(n=3), priority="low", correlation_id="case-7"),
                ],
            )
        assert ids[1] == mine
        await app.drain()
        (moved,) = app.broker().messages("elsewhere")
        assert (moved.id, moved.key, moved.headers["x"]) == (mine, "b", "y")
        assert (await app.insight.event(ids[2])).event.correlation_id == "case-7"


@pytest.mark.parametrize("other", [{"n": 2}, {"key": "b"}], ids=["payload", "key"])
async def test_other_content_leaves_the_transaction_usable(app: Postlude, other: dict[str, Any]) -> None:
    mine = uuid4()
    given: dict[str, Any] = {"key": "a", "n": 1}
    async with app:
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(**given), id=mine)
        async with app.transaction() as tx:
            with pytest.raises(IdConflict):
                await app.outbox.append(tx, Noted(**(given | other)), id=mine)
            await app.outbox.append(tx, Noted(key="c", n=9))
        await app.drain()
        assert published(app) == [1, 9]


@pytest.mark.parametrize("first_commits", [True, False])
async def test_two_transactions_with_one_id_agree_in_the_end(postgres_url: str, first_commits: bool) -> None:
    app = routed_app(postgres_url)
    mine = uuid4()
    async with app, held(postgres_url) as first, held(postgres_url) as second:
        await app.outbox.append(first.connection, Noted(key="a", n=1), id=mine)
        waits = asyncio.create_task(app.outbox.append(second.connection, Noted(key="a", n=1), id=mine))
        await asyncio.sleep(0)
        await (first.commit() if first_commits else first.rollback())
        assert await waits == mine
        await second.commit()
        await app.drain()
        assert published(app) == [1]


async def test_ids_of_ours_sort_by_time_and_have_a_partition(app: Postlude) -> None:
    async with app:
        before = datetime.now(UTC) - timedelta(seconds=1)
        async with app.transaction() as tx:
            made = await app.outbox.append(tx, Noted(key="a", n=1))
        assert made.version == 7
        assert before.timestamp() * 1000 <= made.int >> 80 <= (before.timestamp() + 60) * 1000


async def test_a_time_of_another_zone_is_the_same_moment(app: Postlude) -> None:
    async with app:
        async with app.transaction() as tx:
            past = datetime.now(ZoneInfo("Pacific/Auckland")) - timedelta(seconds=1)
            await app.outbox.append(tx, Noted(key="a", n=1), available_at=past)
        await app.drain()
        assert published(app) == [1]


async def test_a_priority_is_refused_where_the_route_gives_a_key(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Told, key="n")
    async with app:
        async with app.transaction() as tx:
            with pytest.raises(InvalidKey):
                await app.outbox.append(tx, Told(n=1), priority="high")
            await app.outbox.append(tx, Told(n=2))
        await app.drain()
        assert told(app) == [2]


async def test_the_stored_event_is_what_was_said(app: Postlude, database_url: str) -> None:
    async with app:
        async with app.transaction() as tx:
            made = await app.outbox.append(tx, Noted(key="ü", n=1), headers={"X-Tenant": "t-1"}, topic="over.here")
        stored = (await app.insight.event(made)).event
    assert (stored.type, stored.version, stored.source) == ("test.noted", 1, "postlude")
    assert (stored.key, stored.topic, stored.content_type) == ("ü", "over.here", "application/json")
    assert stored.payload == msgspec.json.encode(Noted(key="ü", n=1))
    assert stored.headers.keys() == {"x-tenant", "traceparent"}
    assert stored.correlation_id == str(made)
    assert stored.causation_id is None
    assert abs(stored.created_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_people_read_payloads_as_json(app: Postlude, database_url: str) -> None:
    async with app, app.transaction() as tx:
        await app.outbox.append(tx, Noted(key="a", n=7))
    ((payload,),) = await query(database_url, "SELECT payload FROM postlude_event_json")
    assert json.loads(payload) == {"key": "a", "n": 7}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"p-1", "f-1"}),
        ({"subjects": ["x", "y"]}, {"x", "y"}),
        ({"subjects": []}, set()),
    ],
    ids=["by its fields", "by the caller", "none"],
)
async def test_data_subjects_are_stored(
    app: Postlude, database_url: str, given: dict[str, Any], expected: set[str]
) -> None:
    async with app, app.transaction() as tx:
        await app.outbox.append(tx, Told(n=1, person="p-1", friend="f-1"), **given)
        await app.outbox.append_many(tx, [Told(n=2), Told(n=3, person="p-1")])
    if database_url.startswith("sqlite"):
        find = "SELECT subject FROM postlude_event_subject"
    else:
        find = "SELECT unnest(subjects) FROM postlude_event"
    assert {row[0] for row in await query(database_url, find)} == expected | {"p-1"}


async def test_cause_correlation_and_trace_pass_from_event_to_event(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Told)
    made: list[UUID] = []

    @app.on(Noted)
    async def react(noted: Noted, ctx: Context) -> None:
        made.append(await ctx.append(Told(n=1)))
        made.append(await app.outbox.append(ctx.tx, Told(n=2)))
        made.append(await ctx.append(Told(n=3), correlation_id="mine", causation_id=UUID(int=5)))

    async with app:
        async with app.transaction() as tx:
            first = await app.outbox.append(
                tx, Noted(key="a", n=0), correlation_id="case-7", headers={"traceparent": TRACE}
            )
        await app.drain()
        events = [(await app.insight.event(one)).event for one in made]
        story = await app.insight.event(first)
    assert [one.correlation_id for one in events] == ["case-7", "case-7", "mine"]
    assert [one.causation_id for one in events] == [first, first, UUID(int=5)]
    traces = [one.headers["traceparent"].split("-") for one in events]
    assert {trace[1] for trace in traces} == {TRACE.split("-")[1]}
    assert len({trace[2] for trace in traces} | {TRACE.split("-")[2]}) == 4, "each has a span of its own"
    assert set(story.caused) == set(made[:2])
    messages = {message.id: message.headers for message in app.broker().messages()}
    assert messages[made[0]]["ce_causationid"] == str(first)
    assert messages[made[0]]["ce_correlationid"] == "case-7"


@pytest.mark.parametrize("subjects", ["ada", [None], [""], [b"ada"], ["a" * 256], ["ada\0"], [["ada"]]])
async def test_a_subject_that_nobody_could_ask_for_is_refused_without_saying_it(sqlite_url: str, subjects: Any) -> None:
    app = make_app(sqlite_url)
    app.route(Told)
    async with app, app.transaction() as tx:
        with pytest.raises(ConfigurationError, match="subject") as refused:
            await app.outbox.append(tx, Told(n=1), subjects=subjects)
    assert "ada" not in str(refused.value)


@pytest.mark.parametrize("said", [Message(Told(n=1), topic="ada\0"), Message(Told(n=1), correlation_id="ada\0")])
async def test_a_topic_or_correlation_id_that_cannot_be_stored_is_not_said(sqlite_url: str, said: Message) -> None:
    app = make_app(sqlite_url)
    app.route(Told)
    async with app, app.transaction() as tx:
        with pytest.raises(NotEncodable, match="NUL") as refused:
            await app.outbox.append_many(tx, [said])
    assert "ada" not in str(refused.value)
