"""Consumers: effects exactly once whatever is delivered again, in order, shared, and never more than there is room for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from postlude import ConfigurationError, Context, DatabaseUnavailable, Postlude, Received
from tests.consuming import ONE_OF_EACH, Outage, Unreliable, booked, counted, noted, open_books, seen, service, write
from tests.databases import Databases
from tests.engine import Noted, make_app, query, until, workers


@pytest.fixture
def broker() -> Unreliable:
    return Unreliable()


@pytest.fixture(params=ONE_OF_EACH)
def databases(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> Databases:
    return databases_on(request.param)


@pytest.fixture
async def url(databases: Databases) -> str:
    made = databases.fresh()
    await open_books(made)
    return made


@pytest.fixture
async def app(url: str, broker: Unreliable) -> AsyncIterator[Postlude]:
    async with service(url, broker) as app:
        yield app


# ---------------------------------------------------------------- exactly once


async def test_what_another_service_relays_arrives_here(
    app: Postlude, url: str, databases: Databases, broker: Unreliable
) -> None:
    """The two services share nothing but the broker."""
    shop = make_app(databases.fresh())
    shop._opened_brokers["default"] = broker
    shop.route(Noted)
    async with shop:
        async with shop.transaction() as tx:
            event_id = await shop.outbox.append(tx, Noted(key="k", n=7), correlation_id="c-9", headers={"tenant": "t"})
        await shop.drain()
        assert await app.drain() == 1
        assert await booked(url) == [7]
        there, here = await shop.insight.event(event_id), await app.insight.event(event_id)
        assert (here.event.payload, here.event.key, here.event.correlation_id) == (there.event.payload, "k", "c-9")
        assert here.event.headers["tenant"] == "t"
        assert here.event.headers["traceparent"] == there.event.headers["traceparent"]
        assert [one.destination for one in here.receipts] == ["handler:billing_books"]


async def test_everything_that_comes_again_has_one_effect(app: Postlude, url: str, broker: Unreliable) -> None:
    messages = [noted(n, f"k{n % 3}") for n in range(30)]
    for _ in range(3):
        await broker.publish(messages)
        await app.drain()
    assert sorted(await booked(url)) == list(range(30))
    view = await counted(app)
    assert (view.received, view.duplicates, view.open, view.dead, view.lag) == (90, 60, 0, 0, 0)
    assert view.lag_age_seconds is not None
    assert view.last_at is not None


async def test_a_duplicate_in_the_same_batch_is_dropped(app: Postlude, url: str, broker: Unreliable) -> None:
    one, other = noted(1), noted(2)
    await broker.publish([one, one, other, one])
    assert await app.drain() == 2
    assert await booked(url) == [1, 2]
    view = await counted(app)
    assert (view.received, view.duplicates) == (4, 2)


async def test_what_was_committed_and_not_acknowledged_comes_again_without_effect(
    app: Postlude, url: str, broker: Unreliable
) -> None:
    """A crash between commit and acknowledgement: the group gives it to the next member."""
    broker.loses_acks = True
    await broker.publish([noted(n) for n in range(5)])
    await app.run_once()
    assert broker.lost_acks == 1
    assert await seen(url) == 5
    broker.loses_acks = False
    await app.drain()
    assert broker.taken["billing"] == [0, 1, 2, 3, 4] * 2
    assert await booked(url) == [0, 1, 2, 3, 4]
    assert (await counted(app)).duplicates == 5
    assert (await counted(app)).lag == 0


async def test_what_was_taken_and_not_committed_goes_to_another_member(url: str, broker: Unreliable) -> None:
    async with service(url, broker) as lost, service(url, broker) as heir:
        outage = Outage(lost)
        await lost.start()
        outage.is_on = True
        await broker.publish([noted(n) for n in range(5)])
        with pytest.raises(DatabaseUnavailable):
            await lost.run_once()
        assert outage.refused
        await heir.drain()
        assert broker.taken["billing"] == [0, 1, 2, 3, 4] * 2
        assert await booked(url) == [0, 1, 2, 3, 4]
        assert (await counted(heir)).duplicates == 0


async def test_run_once_takes_a_batch(url: str, broker: Unreliable) -> None:
    async with service(url, broker, consumer={"batch_size": 3}) as app:
        await broker.publish([noted(n) for n in range(5)])
        assert await app.run_once() == 3
        assert (await counted(app)).lag == 2
        assert await app.run_once() == 2
        assert await app.run_once() == 0
        assert await booked(url) == [0, 1, 2, 3, 4]
        assert (await counted(app)).lag == 0


async def test_what_was_taken_is_handled_without_waiting_for_the_next_poll(url: str, broker: Unreliable) -> None:
    async with service(url, broker, relay={"poll_min_ms": 60_000, "poll_max_ms": 60_000}) as app, app.worker():
        await until(lambda: broker.joined == 1)
        await broker.publish([noted(1)])
        await until(lambda: _are_booked(url, [1]))


# ---------------------------------------------------------------- order, sharing


async def test_the_order_of_each_key_is_kept_through_failures(url: str, broker: Unreliable) -> None:
    app = make_app(url, consumer={"batch_size": 7})
    app._opened_brokers["default"] = broker
    failed: set[int] = set()

    @app.on(Noted, topic="noted", consumer="billing")
    async def book(note: Noted, ctx: Context) -> None:
        await write(ctx.tx, "billing", note)
        if note.n % 5 == 0 and note.n not in failed:
            failed.add(note.n)
            raise RuntimeError("not at once")

    async with app:
        await broker.publish([noted(n, f"k{n % 4}") for n in range(40)])
        await app.drain()
        assert len(failed) == 8
        for k in range(4):
            assert await booked(url, key=f"k{k}") == [n for n in range(40) if n % 4 == k]


async def test_a_key_that_the_message_does_not_name_is_read_from_its_payload(
    app: Postlude, url: str, broker: Unreliable
) -> None:
    message = noted(1, key="from-payload")
    del message.headers["ce_partitionkey"]
    await broker.publish([type(message)(message.id, message.topic, None, message.payload, message.headers)])
    await app.drain()
    (kept,) = await query(url, "SELECT key FROM postlude_event")
    assert kept == ("from-payload",)


async def test_two_consumers_in_one_database_both_get_everything(url: str, broker: Unreliable) -> None:
    async with service(url, broker, "billing", "shipping") as app:
        await broker.publish([noted(n) for n in range(10)])
        assert await app.drain() == 20
        assert await booked(url, "billing") == await booked(url, "shipping") == list(range(10))
        assert [one.name for one in await app.insight.consumers()] == ["billing", "shipping"]
        assert await query(url, "SELECT count(*) FROM postlude_event") == [(10,)]


async def test_two_handlers_of_one_consumer_get_each_message_once(url: str, broker: Unreliable) -> None:
    async with service(url, broker) as app:

        @app.on(Noted, name="second", topic="noted", consumer="billing")
        async def second(note: Noted, ctx: Context) -> None:
            await write(ctx.tx, "second", note)

        await broker.publish([noted(1), noted(2)])
        assert await app.drain() == 4
        assert broker.taken == {"billing": [1, 2]}
        assert await booked(url, "billing") == await booked(url, "second") == [1, 2]


async def test_two_members_of_a_consumer_share(url: str, broker: Unreliable) -> None:
    settings = {"consumer": {"batch_size": 5}}
    async with service(url, broker, **settings) as one, service(url, broker, **settings) as other:
        async with workers(one) as (first,), workers(other) as (second,):
            await broker.publish([noted(n, f"k{n}") for n in range(10)])
            await first.drain_once()
            await second.drain_once()
            assert broker.joined == 2
            assert broker.taken["billing"] == list(range(10))
            assert await seen(url) == 10
        await one.drain()
        assert sorted(await booked(url)) == list(range(10))
        assert (await counted(one)).duplicates == 0


async def test_many_members_at_once_keep_the_books_right(url: str, broker: Unreliable) -> None:
    """While they join and leave, and everything comes twice."""
    settings = {"consumer": {"batch_size": 4}, "lane": {"lease": 4.0}}
    async with service(url, broker, **settings) as one, service(url, broker, **settings) as other:
        messages = [noted(n, f"k{n % 5}") for n in range(40)]
        async with one.worker():
            await broker.publish(messages)
            async with other.worker():
                await broker.publish(messages)
                await until(lambda: len(broker.taken.get("billing", ())) >= 80)
        await one.drain()
        assert sorted(await booked(url)) == list(range(40))
        assert (await counted(one)).received >= 80
        assert (await counted(one)).lag == 0


async def test_events_of_our_own_do_not_reach_a_consumers_handlers(app: Postlude, url: str) -> None:
    app.route(Noted)
    async with app.transaction() as tx:
        await app.outbox.append(tx, Noted(key="k", n=1))
    await app.run_once()
    assert await query(url, "SELECT destination FROM postlude_receipt") == [("default",)]
    assert await booked(url) == []
    await app.drain()  # it comes back from the broker: the event is known, the consumer has not seen it
    assert await booked(url) == [1]


# ---------------------------------------------------------------- where it begins


@pytest.mark.parametrize(("start", "expected"), [("earliest", [1, 2]), ("latest", [2])])
async def test_a_new_group_begins_where_it_is_told(
    url: str, broker: Unreliable, start: str, expected: list[int]
) -> None:
    async with service(url, broker, consumers={"billing": {"start": start}}) as app:
        await broker.publish([noted(1)])
        await app.drain()
        await broker.publish([noted(2)])
        await app.drain()
        assert await booked(url) == expected


async def test_the_group_may_have_another_name(url: str, broker: Unreliable) -> None:
    async with service(url, broker, consumers={"billing": {"group": "legacy"}}) as app:
        await broker.publish([noted(1)])
        await app.drain()
        assert broker.taken == {"legacy": [1]}
        assert (await counted(app)).received == 1


# ---------------------------------------------------------------- room


async def test_nothing_more_is_taken_while_there_is_no_room(url: str, broker: Unreliable) -> None:
    app = make_app(url, consumer={"max_open": 3})
    app._opened_brokers["default"] = broker
    free, handled, looks = asyncio.Event(), set(), 0

    @app.on(Noted, topic="noted", consumer="billing", transactional=False)
    async def book(note: Noted) -> None:
        await free.wait()
        handled.add(note.n)

    async with app:
        receiving: Any = app.store.receiving
        count = receiving.open_entries

        async def counted_entries(*given) -> int:
            nonlocal looks
            looks += 1
            return int(await count(*given))

        receiving.open_entries = counted_entries
        await broker.publish([noted(n, f"k{n}") for n in range(12)])
        async with app.worker():
            await until(lambda: broker.taken.get("billing") == [0, 1, 2])
            before = looks
            await until(lambda: looks >= before + 3)
            assert broker.taken["billing"] == [0, 1, 2]
            assert await seen(url) == 3
            await until(lambda: _lag_is(app, 9))
            free.set()
            await until(lambda: handled == set(range(12)))


async def _lag_is(app: Postlude, expected: int) -> bool:
    return (await counted(app)).lag == expected


async def test_dead_letters_take_no_room(url: str, broker: Unreliable) -> None:
    async with service(url, broker, consumer={"max_open": 1}) as app:
        await broker.publish([noted(1), noted(2, ce_dataversion="9"), noted(3), noted(4)])
        await app.drain()
        assert await booked(url) == [1, 3, 4]
        assert (await counted(app)).dead == 1


# ---------------------------------------------------------------- outages


async def test_nothing_is_acknowledged_while_the_database_is_away(
    app: Postlude, url: str, broker: Unreliable, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(app)
    async with app.worker():
        await until(lambda: broker.joined == 1)
        outage.is_on = True
        await broker.publish([noted(n) for n in range(5)])
        await until(lambda: len(broker.taken.get("billing", ())) == 5)
        before = outage.refused
        await until(lambda: outage.refused >= before + 2)
        assert await seen(url) == 0
        assert broker._groups["billing"].taken == {("noted", n) for n in range(5)}
        outage.is_on = False
        await until(lambda: _are_booked(url, [0, 1, 2, 3, 4]))
    assert broker.taken["billing"] == [0, 1, 2, 3, 4]
    assert await _attempts(url) == {1}
    said = [record.getMessage() for record in caplog.records if record.name == "postlude.outage"]
    assert "billing: the test took it away" in said


async def test_who_stops_while_the_database_is_away_leaves_its_messages_to_others(url: str, broker: Unreliable) -> None:
    async with service(url, broker, worker={"shutdown_timeout": 40}) as app:
        outage = Outage(app)
        async with app.worker():
            await until(lambda: broker.joined == 1)
            outage.is_on = True
            await broker.publish([noted(1)])
            await until(lambda: outage.refused >= 1)
            began = time.monotonic()
        assert time.monotonic() - began < 30
        outage.is_on = False
        await app.drain()
        assert await booked(url) == [1]


async def test_a_broker_that_is_away_costs_nothing(
    app: Postlude, url: str, broker: Unreliable, caplog: pytest.LogCaptureFixture
) -> None:
    async with app.worker():
        await until(lambda: broker.joined == 1)
        await broker.publish([noted(1)])
        await until(lambda: _are_booked(url, [1]))
        broker.is_down = True
        broker.topics["noted"].append(noted(2))  # somebody else could still reach it
        assert await app.run_once() == 0
        await until(lambda: caplog.text.count("billing: the memory broker was told to be down") >= 2)
        broker.is_down = False
        await until(lambda: _are_booked(url, [1, 2]))
    assert await _attempts(url) == {1}


async def test_an_adapter_that_breaks_its_contract_is_logged_and_tried_again(
    app: Postlude, url: str, broker: Unreliable, caplog: pytest.LogCaptureFixture
) -> None:
    broker.raises = KeyError("nobody expects this")
    broker.raises_on_leaving = RuntimeError("nor this")
    await broker.publish([noted(1)])
    async with app.worker():
        await until(lambda: _are_booked(url, [1]))
        broker.raises_on_leaving = None
    assert broker.joined == 2
    broken = [record for record in caplog.records if record.name == "postlude.consumer" and record.exc_info]
    assert [record.exc_info[0] for record in broken if record.exc_info] == [KeyError, RuntimeError]
    assert all(record.levelno == logging.ERROR for record in broken)


async def test_who_waits_for_messages_stops_at_once(app: Postlude, broker: Unreliable) -> None:
    async with app.worker():
        await until(lambda: broker.joined == 1)
        began = time.monotonic()
    assert time.monotonic() - began < 20
    assert not broker._members


async def _are_booked(url: str, expected: list[int]) -> bool:
    return await booked(url) == expected


async def _attempts(url: str) -> set[int]:
    return {row[0] for row in await query(url, "SELECT attempts FROM postlude_receipt")}


# ---------------------------------------------------------------- declaring


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "noted"}, "names a topic, but no consumer"),
        ({"broker": "other"}, "names a broker, but no consumer"),
        ({"consumer": "billing", "broker": "nowhere"}, "there is no broker 'nowhere'"),
        ({"consumer": "no spaces"}, "'no spaces' is not the name of a consumer"),
        ({"consumer": ""}, "'' is not the name of a consumer"),
    ],
)
def test_a_handler_that_could_not_consume_is_refused(options: dict[str, Any], said: str) -> None:
    app = make_app("sqlite:///nowhere.db")
    with pytest.raises(ConfigurationError, match=said) as refused:
        app.on(Noted, **options)(_nothing)
    assert refused.value.hint


def test_a_mapping_is_given_once_and_for_a_known_broker() -> None:
    app = make_app("sqlite:///nowhere.db")
    app.foreign("noted")(lambda received: None)
    with pytest.raises(ConfigurationError, match="two mappings of noted"):
        app.foreign("noted")(lambda received: None)
    with pytest.raises(ConfigurationError, match="no broker 'nowhere'"):
        app.foreign("noted", broker="nowhere")


def test_a_mapping_only_computes() -> None:
    async def mapping(received: Received) -> None:
        """Would give a coroutine instead of an event."""

    with pytest.raises(ConfigurationError, match="the mapping of noted is a coroutine function"):
        make_app("sqlite:///nowhere.db").foreign("noted")(mapping)


def test_one_consumer_takes_from_one_broker() -> None:
    app = make_app("sqlite:///nowhere.db")
    app.on(Noted, name="one", consumer="billing")(_nothing)
    with pytest.raises(ConfigurationError, match="the consumer billing takes from several brokers: default, other"):
        app.on(Noted, name="other", consumer="billing", broker="other")(_nothing)


async def _nothing(note: Noted) -> None:
    """Is never called."""
