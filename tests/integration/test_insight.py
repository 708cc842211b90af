"""What the insight API tells about events, deliveries, workers and destinations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from postlude import (
    ConfigurationError,
    Context,
    Event,
    Message,
    NaiveDatetime,
    NotFound,
    Ok,
    Page,
    Postlude,
    Reject,
    Status,
    event,
)
from postlude.core.outcome import Failed, Fault, Rejected
from tests.engine import Noted, make_app, note, query, routed_app, workers

EMPTY = {"pending": 0, "claimed": 0, "failed": 0, "scheduled": 0, "dead": 0}
AN_HOUR = {"base_delay_seconds": 3600, "max_backoff_seconds": 3600, "jitter_factor": 0}
WHO: dict[str, Any] = {"actor": "ann", "reason": "tests"}


@event(type="test.followed", key="key")
class Followed(Event):
    """What a handler says after a note."""

    key: str


@event(type="test.strict", topic="strict", key="key", on_dead="block")
class Strict(Event):
    """Nothing of its key may overtake one that died."""

    key: str
    n: int


def fate_by(**outcomes: Any) -> Any:
    """Outcomes by the number a note carries: `n1=Failed(...)`."""

    def fate(message: Any) -> Any:
        return next(
            (found for name, found in outcomes.items() if f'"n":{name[1:]}}}'.encode() in message.payload), None
        )

    return fate


async def walk(app: Postlude, limit: int, **filters: Any) -> list[Page]:
    """Every page of a list."""
    pages = [await app.insight.list(limit=limit, **filters)]
    while pages[-1].after is not None:
        pages.append(await app.insight.list(limit=limit, after=pages[-1].after, **filters))
    return pages


# ---------------------------------------------------------------- counts


async def test_counts_are_zero_filled(database_url: str) -> None:
    async with routed_app(database_url) as app:
        assert await app.insight.counts() == EMPTY


async def test_counts_tell_every_open_status(database_url: str) -> None:
    app = routed_app(database_url, retry=AN_HOUR)
    app.broker().fate = fate_by(n1=Rejected(Fault("Bad")), n2=Failed(Fault("Slow")))
    async with app:
        for n in (1, 2, 3):
            await note(app, f"key-{n}", n)
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="later", n=4), available_at=datetime.now(UTC) + timedelta(days=1))
        await app.drain()
        await note(app, "key-5", 5)
        assert await app.insight.counts() == {**EMPTY, "dead": 1, "failed": 1, "scheduled": 1, "pending": 1}


# ---------------------------------------------------------------- lists


async def _varied(url: str) -> tuple[Postlude, list[UUID]]:
    """Three events at two destinations: one dead at one of them."""
    app = make_app(url)
    app.route(Noted)
    app.route(Noted, to="other")
    app.route(Followed)
    app.broker().fate = fate_by(n1=Rejected(Fault("Bad", "bad.thing")))
    app.broker("other").is_down = True
    await app.start()
    ids = []
    for one in (
        Message(Noted(key="a", n=1), correlation_id="trip-1"),
        Message(Noted(key="b", n=2)),
        Message(Followed(key="c"), correlation_id="trip-1"),
    ):
        async with app.transaction() as tx:
            ids += await app.outbox.append_many(tx, [one])
    await app.run_once()
    return app, ids


async def test_open_deliveries_are_listed_by_every_filter(database_url: str) -> None:
    app, (first, second, _) = await _varied(database_url)
    async with app:

        async def found(**filters: Any) -> list[tuple[UUID, str]]:
            return [(item.event_id, item.destination) for item in await app.insight.list(**filters)]

        dead, waiting, last = (first, "default"), (first, "other"), (second, "other")
        assert await found() == [dead, waiting, last]
        assert await found(status="dead") == await found(status=Status.dead) == [dead]
        assert await found(status="pending") == [waiting, last]
        assert await found(status="claimed") == []
        assert await found(type="test.noted") == [dead, waiting, last]
        assert await found(type="test.followed") == []
        assert await found(key="b") == [last]
        assert await found(correlation="trip-1") == [dead, waiting]
        assert await found(correlation=str(second)) == [last]
        assert await found(destination="other") == [waiting, last]
        assert await found(destination="other", key="a", status="pending") == [waiting]
        assert await found(saga=uuid4()) == []


async def test_since_is_included_and_until_is_not(database_url: str) -> None:
    app, (first, second, _) = await _varied(database_url)
    async with app:
        boundary = (await app.insight.event(second)).event.created_at
        assert {item.event_id for item in await app.insight.list(since=boundary)} == {second}
        assert {item.event_id for item in await app.insight.list(until=boundary)} == {first}
        assert len(await app.insight.list(since=boundary, until=boundary)) == 0
        with pytest.raises(NaiveDatetime):
            await app.insight.list(since=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


async def test_a_delivery_tells_what_one_wants_to_know(database_url: str) -> None:
    app, (first, _, _) = await _varied(database_url)
    async with app:
        (letter,) = await app.insight.list(status="dead")
        assert (letter.event_id, letter.type, letter.key, letter.attempts) == (first, "test.noted", "a", 1)
        assert (letter.status, letter.correlation_id, letter.blocks) == (Status.dead, "trip-1", False)
        assert letter.error == "Bad (bad.thing)"
        assert letter.created_at is not None
        assert letter.created_at.tzinfo is not None


async def test_settled_deliveries_are_listed_by_outcome(database_url: str) -> None:
    app, (first, second, third) = await _varied(database_url)
    async with app:
        await app.actions.discard([first], destination="default", **WHO)
        sent = {(item.event_id, item.destination, item.status) for item in await app.insight.list(status="sent")}
        assert sent == {(second, "default", "sent"), (third, "default", "sent")}
        (given_up,) = await app.insight.list(status="discarded")
        assert (given_up.event_id, given_up.destination, given_up.status) == (first, "default", "discarded")
        assert [item.event_id for item in await app.insight.list(status="sent", type="test.followed")] == [third]
        assert [item.event_id for item in await app.insight.list(status="sent", key="b")] == [second]
        assert len(await app.insight.list(status="sent", destination="other")) == 0


@pytest.mark.parametrize("status", ["pending", "sent"])
async def test_pages_follow_one_another_without_gap_or_repetition(database_url: str, status: str) -> None:
    async with routed_app(database_url) as app:
        await note(app, "a", *range(10))
        if status == "sent":
            await app.drain()
        pages = await walk(app, 4, status=status)
        assert [len(page) for page in pages] == [4, 4, 2]
        seen = [item.seq for page in pages for item in page]
        assert len(set(seen)) == 10
        if status == "pending":
            assert seen == sorted(seen)


async def test_what_is_appended_between_two_pages_is_in_the_second(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await note(app, "a", 1, 2)
        first = await app.insight.list(limit=2)
        await note(app, "a", 3)
        second = await app.insight.list(limit=2, after=first.after)
        assert [len(first), len(second), second.after] == [2, 1, None]


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"limit": 10_001}, {"status": "lost"}, {"after": "x"}, {"status": "sent", "after": "17"}],
)
async def test_a_list_that_cannot_be_is_refused(database_url: str, wrong: dict[str, Any]) -> None:
    async with routed_app(database_url) as app:
        with pytest.raises(ConfigurationError):
            await app.insight.list(**wrong)


# ---------------------------------------------------------------- one event


async def test_the_story_of_an_event(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Noted)
    app.route(Followed)

    @app.on(Noted, name="follow")
    async def follow(noted: Noted, ctx: Context) -> Ok[Followed]:
        return Ok(Followed(key=noted.key))

    @app.on(Noted, name="refuse")
    async def refuse(noted: Noted, ctx: Context) -> None:
        raise Reject("never")

    async with app:
        async with app.transaction() as tx:
            cause = await app.outbox.append(tx, Noted(key="a", n=1), headers={"tenant": "t-1"})
        await app.drain()
        story = await app.insight.event(str(cause))
        assert (story.event.event_id, story.event.type, story.event.key) == (cause, "test.noted", "a")
        assert story.event.headers["tenant"] == "t-1"
        assert story.event.payload == b'{"key":"a","n":1}'
        (letter,) = story.deliveries
        assert (letter.destination, letter.status, letter.type) == ("handler:refuse", "dead", "test.noted")
        proofs = {(one.destination, one.outcome, one.attempts) for one in story.receipts}
        assert {(destination, outcome) for destination, outcome, _ in proofs} == {
            ("default", "sent"),
            ("handler:follow", "sent"),
        }
        assert all(one.worker is not None and one.actor is None for one in story.receipts)
        assert story.causes == []
        (caused,) = story.caused
        effect = await app.insight.event(caused)
        assert (effect.event.type, effect.causes, effect.caused) == ("test.followed", [cause], [])
        assert effect.event.correlation_id == str(cause)


@pytest.mark.parametrize("unknown", [UUID(int=7), str(UUID(int=7)), "o-1"])
async def test_an_event_that_never_was_is_not_found(database_url: str, unknown: Any) -> None:
    async with routed_app(database_url) as app:
        with pytest.raises(NotFound):
            await app.insight.event(unknown)


# ---------------------------------------------------------------- workers and destinations


async def test_workers_are_listed_while_they_live(database_url: str) -> None:
    app = routed_app(database_url)
    async with workers(app, 2) as (first, second):
        found = await app.insight.workers()
        assert [one.id for one in found] == [first.id, second.id]
        assert all({"default", "route"} <= set(one.destinations) for one in found)
        assert all(one.lease_until > one.started_at for one in found)
        await second.stop(timeout=1)
        assert [one.id for one in await app.insight.workers()] == [first.id]
        app.clock.advance(3600)
        assert await app.insight.workers() == []
    await app.close()


async def test_destinations_tell_their_open_work_and_lanes(database_url: str) -> None:
    app = routed_app(database_url)
    app.route(Noted, to="other")
    app.broker().fate = fate_by(n1=Rejected(Fault("Bad")))
    app.broker("other").is_down = True
    async with app, workers(app) as (worker,):
        for n in (1, 2):
            await note(app, f"key-{n}", n)
        await worker.tick()
        await worker.drain_once()
        found = {one.name: one for one in await app.insight.destinations()}
        assert set(found) == {"default", "other", "route", "call:postlude"}
        assert {name: one.kind for name, one in found.items()} == {
            "default": "broker",
            "other": "broker",
            "route": "route",
            "call:postlude": "call",
        }
        assert found["default"].open == {"dead": 1}
        assert found["other"].open == {"pending": 2}
        assert (found["default"].lanes, found["default"].lanes_owned) == (64, 64)
        assert found["route"].lanes == 1
        assert found["default"].paused_at is None
        app.clock.advance(100)
        await app.actions.pause("other", **WHO)
        _, default, other, _ = await app.insight.destinations()
        assert default.oldest_due_seconds == 0
        assert 99 < other.oldest_due_seconds < 200
        assert (other.paused_by, other.reason) == ("ann", "tests")
        assert other.paused_at is not None


async def test_keys_that_a_dead_letter_blocks_are_counted(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Strict)
    app.route(Noted)
    app.broker().fate = fate_by(n1=Rejected(Fault("Bad")))
    async with app:
        async with app.transaction() as tx:
            for key in ("a", "b"):
                await app.outbox.append_many(tx, [Strict(key=key, n=n) for n in (1, 2, 3)])
            await app.outbox.append_many(tx, [Noted(key="c", n=n) for n in (1, 2)])
        await app.drain()
        default = next(one for one in await app.insight.destinations() if one.name == "default")
        assert default.open == {"dead": 3, "pending": 4}
        assert default.blocked_keys == 2
        assert {item.key for item in await app.insight.list(status="dead") if item.blocks} == {"a", "b"}


async def test_work_that_no_live_worker_serves_is_told(database_url: str) -> None:
    app, other = routed_app(database_url), make_app(database_url)
    app.route(Noted, to="other")
    other.route(Noted)
    async with app, other, workers(other) as (worker,):
        await note(app, "a", 1, 2)
        assert await app.insight.unserved() == {"other": 2}
        await worker.stop(timeout=1)
        assert await app.insight.unserved() == {"default": 2, "other": 2}
        app.broker("other").fate = fate_by(n1=Rejected(Fault("Bad")))
        await app.drain()
        assert await app.insight.unserved() == {}, "a dead letter waits for a person, not for a worker"


# ---------------------------------------------------------------- export and audits


async def test_an_export_streams_every_event_over_many_pages(database_url: str) -> None:
    app = routed_app(database_url)
    app.route(Followed)
    async with app:
        await note(app, "a", *range(1203))
        async with app.transaction() as tx:
            last = await app.outbox.append(tx, Followed(key="a"))
        await app.drain()
        seen = [one.event_id async for one in app.insight.export()]
        assert len(seen) == len(set(seen)) == 1204
        assert seen == sorted(seen)
        assert [one.event_id async for one in app.insight.export(type="test.followed")] == [last]
        since = (await app.insight.event(last)).event.created_at
        assert [one.event_id async for one in app.insight.export(since=since)] == [last]
        assert len([one async for one in app.insight.export(until=since)]) == 1203


async def test_an_export_may_be_left_in_the_middle(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await note(app, "a", *range(600))
        export = app.insight.export()
        first = await anext(export)
        await export.aclose()  # type: ignore[attr-defined]  # a generator is what streams
        assert first.payload.startswith(b'{"key":"a","n":')
        assert await query(database_url, "SELECT count(*) FROM postlude_event") == [(600,)]


async def test_audits_come_newest_first_and_by_target(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await app.drain()
        await note(app, "a", 1)
        (item,) = await app.insight.list()
        await app.actions.pause("default", **WHO)
        await app.actions.bury([item.event_id], actor="bob", reason="no")
        await app.actions.resume("default", **WHO)
        found = await app.insight.audits()
        assert [one["action"] for one in found] == ["resume", "bury", "pause"]
        assert [one["action"] for one in await app.insight.audits(limit=1)] == ["resume"]
        (buried,) = await app.insight.audits(target=str(item.event_id))
        assert (buried["actor"], buried["reason"], buried["detail"]["status"]) == ("bob", "no", "pending")
        assert buried["at"].tzinfo is not None
