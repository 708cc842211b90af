"""Routes in the app, and events put in by raw SQL that a worker expands."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude import ConfigurationError, Context, Event, Postlude, Unroutable, event
from postlude.core.lanes import lane_of
from postlude.core.outcome import Failed, Fault
from tests.engine import LANES, Noted, make_app, note, published, query, routed_app
from tools.binaries import available_postgres, postgres

EXAMPLE = Path(__file__).parents[2] / "examples" / "raw_sql.sql"


@event(type="order.placed", key="order_id")
class OrderPlaced(Event):
    order_id: str
    total: int


@event(type="test.recorded", record_only=True)
class Recorded(Event):
    """Nobody needs to receive it."""

    n: int


# ---------------------------------------------------------------- a producer without Python


async def psql(url: str, *arguments: str, script: str | None = None) -> str:
    """The real client, as somebody with a shell would use it; it stops at the first error."""
    newest = max(binaries.major for binaries in available_postgres()[0] if (binaries.bin / "psql").is_file())
    client = postgres(newest).bin / "psql"
    options = ("--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", url)
    process = await asyncio.create_subprocess_exec(
        client,
        *options,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate((script or "").encode())
    assert process.returncode == 0, errors.decode()
    return out.decode()


def _postgres_script(event_id: UUID, payload: str, key: str | None, event_type: str, max_attempts: int | None) -> str:
    columns, values = ("", "") if key is None else (", key", f", '{key}'")
    limited = ("", "") if max_attempts is None else (", max_attempts", f", {max_attempts}")
    return f"""
        BEGIN;
        INSERT INTO postlude_event (event_id, type, topic, payload{columns})
        VALUES ('{event_id}', '{event_type}', 'noted', convert_to('{payload}', 'UTF8'){values});
        INSERT INTO postlude_delivery (event_id, destination{limited[0]}) VALUES ('{event_id}', 'route'{limited[1]});
        COMMIT;
    """


def _sqlite_script(event_id: UUID, payload: str, key: str | None, event_type: str, max_attempts: int | None) -> str:
    columns, values = ("", "") if key is None else (", key", f", '{key}'")
    limited = ("", "") if max_attempts is None else (", max_attempts", f", {max_attempts}")
    blob = f"x'{event_id.hex}'"
    return f"""
        BEGIN IMMEDIATE;
        INSERT INTO postlude_event (event_id, type, topic, payload{columns})
        VALUES ({blob}, '{event_type}', 'noted', CAST('{payload}' AS BLOB){values});
        INSERT INTO postlude_delivery (event_id, destination{limited[0]}) VALUES ({blob}, 'route'{limited[1]});
        COMMIT;
    """


async def produce(
    url: str, *notes: Noted, event_type: str = "test.noted", max_attempts: int | None = None
) -> list[UUID]:
    """Append as raw SQL, each note in a transaction of its own."""
    ids = [uuid4() for _ in notes]
    write = _sqlite_script if url.startswith("sqlite") else _postgres_script
    script = "".join(
        write(
            one,
            json.dumps({"key": noted.key, "n": noted.n}, separators=(",", ":")),
            noted.key,
            event_type,
            max_attempts,
        )
        for one, noted in zip(ids, notes, strict=True)
    )
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.executescript(script)
    else:
        await psql(url, script=script)
    return ids


def handling_app(url: str, handled: list[tuple[str, int]], **settings: Any) -> Postlude:
    """Everything goes to the broker and to a handler."""
    app = routed_app(url, **settings)

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> None:
        handled.append((noted.key, noted.n))

    return app


async def test_raw_events_reach_broker_and_handler_in_the_order_of_their_key(database_url: str) -> None:
    handled: list[tuple[str, int]] = []
    app = handling_app(database_url, handled, relay={"batch_size": 7})
    await produce(database_url, *(Noted(key="abc"[n % 3], n=n) for n in range(30)))
    async with app:
        assert (await app.insight.counts())["pending"] == 30
        assert await app.drain() >= 60
        for remainder, key in enumerate("abc"):
            wanted = list(range(remainder, 30, 3))
            assert published(app, key) == wanted
            assert [n for one, n in handled if one == key] == wanted
        assert await query(database_url, "SELECT count(*) FROM postlude_delivery") == [(0,)]
        found = await query(database_url, "SELECT destination, count(*) FROM postlude_receipt GROUP BY 1 ORDER BY 1")
        assert found == [("default", 30), ("handler:handler", 30)]


async def test_children_stand_in_the_lane_of_their_key_in_the_order_of_the_rows(database_url: str) -> None:
    app = routed_app(database_url)
    app.broker().is_down = True
    ids = await produce(database_url, *(Noted(key="ab"[n % 2], n=n) for n in range(6)), max_attempts=4)
    async with app:
        await app.run_once()
        items = list(await app.insight.list(destination="default"))
        assert [item.event_id for item in items] == ids
        assert [item.lane for item in items] == [lane_of("ab"[n % 2], ids[n], LANES) for n in range(6)]
        assert {item.max_attempts for item in items} == {4}


async def test_what_raw_sql_leaves_out_is_filled_in(database_url: str) -> None:
    (one,) = await produce(database_url, Noted(key="a", n=1))
    async with routed_app(database_url) as app:
        await app.drain()
        (message,) = app.broker().messages("noted")
        assert (message.id, message.key, message.payload) == (one, "a", b'{"key":"a","n":1}')
        assert message.headers["ce_type"] == "test.noted"
        assert message.headers["ce_source"] == "sql"
        assert message.headers["ce_correlationid"] == str(one)
        assert message.headers["content-type"] == "application/json"


async def test_an_unroutable_raw_event_is_a_dead_letter_on_route_and_holds_up_nobody(database_url: str) -> None:
    (lost,) = await produce(database_url, Noted(key="a", n=1), event_type="nobody.wants")
    await produce(database_url, Noted(key="a", n=2))
    async with routed_app(database_url) as app:
        await app.drain()
        assert published(app) == [2]
        (letter,) = await app.insight.list(status="dead")
        assert (letter.event_id, letter.destination) == (lost, "route")
        assert "append.unroutable" in (letter.error or "")
        assert "nobody.wants" in (letter.error or "")


async def test_an_unroutable_raw_event_goes_its_way_once_it_has_one(database_url: str) -> None:
    await produce(database_url, Noted(key="a", n=1))
    async with make_app(database_url) as before:
        await before.drain()
        (letter,) = await before.insight.list(status="dead")
    async with routed_app(database_url) as app:
        assert await app.actions.requeue([letter.event_id], actor="ann", reason="routed now") == [letter.event_id]
        await app.drain()
        assert published(app) == [1]


async def test_a_raw_payload_that_cannot_be_decoded_is_a_dead_letter_of_the_handler_only(database_url: str) -> None:
    handled: list[tuple[str, int]] = []
    app = handling_app(database_url, handled)
    script = _sqlite_script if database_url.startswith("sqlite") else _postgres_script
    text = script(uuid4(), "not json", None, "test.noted", None)
    if database_url.startswith("sqlite"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.executescript(text)
    else:
        await psql(database_url, script=text)
    async with app:
        await app.drain()
        assert [message.payload for message in app.broker().messages()] == [b"not json"]
        assert [item.destination for item in await app.insight.list(status="dead")] == ["handler:handler"]


async def test_a_raw_transaction_that_rolls_back_leaves_nothing(postgres_url: str) -> None:
    script = _postgres_script(uuid4(), '{"key":"a","n":1}', "a", "test.noted", None).replace("COMMIT", "ROLLBACK")
    await psql(postgres_url, script=script)
    async with routed_app(postgres_url) as app:
        assert await app.drain() == 0
        assert published(app) == []


async def test_the_example_of_the_guide_works_in_psql(postgres_url: str) -> None:
    app = make_app(postgres_url)
    placed: list[OrderPlaced] = []

    @app.on(OrderPlaced, name="placed")
    async def handle(order: OrderPlaced, ctx: Context) -> None:
        placed.append(order)

    await psql(postgres_url, script="CREATE TABLE orders (id text PRIMARY KEY, total int);")
    await psql(postgres_url, "--file", str(EXAMPLE))
    async with app:
        await app.drain()
        assert placed == [OrderPlaced(order_id="o-1", total=42)]
        (sent,) = await app.insight.list(status="sent", destination="handler:placed")
        assert (sent.key, sent.correlation_id) == ("o-1", "o-1")


async def test_raw_events_of_a_key_that_fails_keep_their_order(database_url: str) -> None:
    failures: list[int] = []

    def once(message: Any) -> Failed | None:
        if b'"n":1}' in message.payload and not failures:
            failures.append(1)
            return Failed(Fault("Slow"))
        return None

    app = routed_app(database_url)
    app.broker().fate = once
    await produce(database_url, *(Noted(key="a", n=n) for n in (1, 2, 3)))
    async with app:
        await app.drain()
        assert (failures, published(app)) == ([1], [1, 2, 3])


# ---------------------------------------------------------------- routes


@event(type="test.moved", key="item")
class Moved(Event):
    item: str
    shelf: str


async def test_a_route_may_give_another_topic_and_key(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Moved)
    app.route(Moved, to="other", topic="shelves", key="shelf")
    async with app:
        async with app.transaction() as tx:
            one = await app.outbox.append(tx, Moved(item="i-1", shelf="s-9"))
        keys = {item.destination: (item.key, item.lane) for item in await app.insight.list()}
        assert keys == {"default": ("i-1", lane_of("i-1", one, LANES)), "other": ("s-9", lane_of("s-9", one, LANES))}
        await app.drain()
        assert [message.id for message in app.broker().messages("events.test.moved")] == [one]
        (message,) = app.broker("other").messages("shelves")
        assert (message.id, message.key, message.headers["ce_partitionkey"]) == (one, "s-9", "s-9")
        assert app.broker("other").messages() == [message]


async def test_the_key_of_a_route_orders_what_goes_there(database_url: str) -> None:
    app = make_app(database_url, retry={"base_delay_seconds": 3600, "jitter_factor": 0})
    app.route(Moved, key="shelf")
    app.broker().fate = lambda message: Failed(Fault("Slow")) if b'"item":"i-1"' in message.payload else None
    async with app:
        async with app.transaction() as tx:
            for item, shelf in (("i-1", "s-1"), ("i-2", "s-1"), ("i-3", "s-2")):
                await app.outbox.append(tx, Moved(item=item, shelf=shelf))
        await app.drain()
        assert [json.loads(message.payload)["item"] for message in app.broker().messages()] == ["i-3"]


async def test_a_route_for_everything_takes_every_type_once(database_url: str) -> None:
    app = make_app(database_url)
    app.route("*")
    app.route(Noted)
    async with app:
        async with app.transaction() as tx:
            await app.outbox.append_many(tx, [Noted(key="a", n=1), Moved(item="i-1", shelf="s-1")])
        assert await app.drain() == 2
        types = sorted(message.headers["ce_type"] for message in app.broker().messages())
        assert types == ["test.moved", "test.noted"]


async def test_a_route_for_everything_takes_raw_types_nobody_declared(database_url: str) -> None:
    await produce(database_url, Noted(key="a", n=1), event_type="some.foreign")
    app = make_app(database_url)
    app.route("*", topic="all")
    async with app:
        await app.drain()
        assert [message.headers["ce_type"] for message in app.broker().messages("all")] == ["some.foreign"]


async def test_two_brokers_get_their_own(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Noted)
    app.route(Noted, to="other")
    app.route(Moved, to="other")
    async with app:
        await note(app, "a", 1, 2)
        async with app.transaction() as tx:
            await app.outbox.append(tx, Moved(item="i-1", shelf="s-1"))
        assert await app.drain() == 5
        assert published(app) == [1, 2]
        assert [len(app.broker("other").messages(topic)) for topic in ("noted", "events.test.moved")] == [2, 1]


async def test_an_event_without_a_receiver_is_refused_unless_it_is_a_record(database_url: str) -> None:
    app = make_app(database_url)
    async with app:
        async with app.transaction() as tx:
            with pytest.raises(Unroutable):
                await app.outbox.append(tx, Noted(key="a", n=1))
            one = await app.outbox.append(tx, Recorded(n=1))
        story = await app.insight.event(one)
        assert (story.event.type, story.deliveries) == ("test.recorded", [])
        assert await query(database_url, "SELECT count(*) FROM postlude_event") == [(1,)]


def test_routes_that_cannot_be_are_refused() -> None:
    app = Postlude("sqlite:///unused.db", broker="memory://")
    app.route(Noted)
    with pytest.raises(ConfigurationError, match="twice"):
        app.route(Noted)
    with pytest.raises(ConfigurationError, match="no broker 'nowhere'"):
        app.route(Noted, to="nowhere")
    with pytest.raises(ConfigurationError, match="no field 'colour'"):
        app.route(Noted, topic="x", key="colour")
    with pytest.raises(ConfigurationError, match="key field"):
        app.route("*", key="key")
