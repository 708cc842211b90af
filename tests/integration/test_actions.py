"""What an operator does: requeue, discard, bury, replay, pause and resume, each audited."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from postlude import ConfigurationError, Context, Event, Filter, NotFound, Postlude, event
from postlude.core.outcome import Failed, Fault, Rejected
from tests.engine import Noted, make_app, note, published, routed_app, workers

REJECTED = Rejected(Fault("Bad"))
WHO: dict[str, Any] = {"actor": "ann", "reason": "tests"}


@event(type="test.strict", topic="strict", key="key", on_dead="block")
class Strict(Event):
    """Nothing of its key may overtake one that died."""

    key: str
    n: int


def refuse(app: Postlude, *numbers: int, outcome: Any = REJECTED, broker: str = "default") -> None:
    """From now on the broker refuses these numbers, and takes all others."""
    refused = [f'"n":{n}}}'.encode() for n in numbers]
    app.broker(broker).fate = lambda message: outcome if message.payload.endswith(tuple(refused)) else None


async def ids(app: Postlude, **filters: Any) -> list[UUID]:
    return [item.event_id for item in await app.insight.list(**filters)]


# ---------------------------------------------------------------- requeue


async def test_a_requeue_gives_a_fresh_budget(database_url: str) -> None:
    app = routed_app(database_url, retry={"max_attempts": 3, "base_delay_seconds": 0, "jitter_factor": 0})
    async with app:
        refuse(app, 1, outcome=Failed(Fault("Slow")))
        await note(app, "a", 1)
        await app.drain()
        (letter,) = await app.insight.list(status="dead")
        assert letter.attempts == 3
        assert await app.actions.requeue([letter.event_id], **WHO) == [letter.event_id]
        (again,) = await app.insight.list()
        assert (again.status, again.attempts, again.seq) == ("failed", 0, letter.seq)
        await app.drain()
        assert [item.attempts for item in await app.insight.list(status="dead")] == [3]
        await app.actions.requeue([letter.event_id], **WHO)
        refuse(app)
        assert await app.drain() == 1
        assert published(app) == [1]


async def test_a_requeue_skips_what_is_not_dead_and_may_be_repeated(database_url: str) -> None:
    async with routed_app(database_url) as app:
        refuse(app, 1)
        await note(app, "a", 1)
        await app.drain()
        await note(app, "b", 2)
        dead, pending = await ids(app, status="dead"), await ids(app, status="pending")
        unknown = UUID(int=5)
        assert await app.actions.requeue([*dead, *pending, unknown, *dead], **WHO) == dead
        assert await app.actions.requeue([*dead, *pending, unknown], **WHO) == []
        assert await app.actions.requeue([str(one) for one in dead], **WHO) == []
        assert len(await app.insight.audits()) == 1
        with pytest.raises(NotFound):
            await app.actions.requeue(["o-1"], **WHO)


async def test_a_requeue_by_filter_takes_only_what_fits(database_url: str) -> None:
    async with routed_app(database_url) as app:
        refuse(app, *range(10))
        for n in range(4):
            await note(app, "ab"[n % 2], n)
        await app.drain()
        refuse(app)
        assert len(await app.actions.requeue(Filter(key="a"), **WHO)) == 2
        await app.drain()
        assert published(app) == [0, 2]
        assert await app.actions.requeue(Filter(status="pending"), **WHO) == []
        assert len(await app.actions.requeue(Filter(status="dead", destination="default"), **WHO)) == 2
        await app.drain()
        assert sorted(published(app)) == [0, 1, 2, 3]


async def test_an_action_by_filter_leaves_other_deliveries_of_the_event_alone(database_url: str) -> None:
    app = routed_app(database_url)
    app.route(Noted, to="other")
    async with app:
        refuse(app, 1)
        refuse(app, 1, broker="other")
        await note(app, "a", 1)
        await app.drain()
        assert len(await app.actions.requeue(Filter(destination="other"), **WHO)) == 1
        assert [item.destination for item in await app.insight.list(status="dead")] == ["default"]
        assert await app.actions.requeue(await ids(app), destination="default", **WHO)
        assert await ids(app, status="dead") == []


async def test_under_skip_a_requeued_event_comes_after_what_followed_it(database_url: str) -> None:
    async with routed_app(database_url) as app:
        refuse(app, 1)
        await note(app, "a", 1, 2)
        await app.drain()
        assert published(app) == [2]
        refuse(app)
        await note(app, "a", 3)
        await app.actions.requeue(Filter(), **WHO)
        await app.drain()
        assert published(app)[0] == 2
        assert published(app, "a") == [2, 1, 3], "open again, it stands in its old place before what still waits"


async def test_under_block_followers_wait_until_their_head_is_requeued_and_done(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Strict)
    async with app:
        refuse(app, 1)
        async with app.transaction() as tx:
            await app.outbox.append_many(tx, [Strict(key="a", n=1), Strict(key="a", n=2), Strict(key="b", n=9)])
        await app.drain()
        assert published(app) == [9]
        async with app.transaction() as tx:
            await app.outbox.append(tx, Strict(key="a", n=3))
        assert await app.drain() == 0
        dead = await ids(app, status="dead")
        assert await app.actions.requeue(dead, **WHO) == dead
        assert await app.drain() == 0, "still refused: it dies again and nobody passes"
        assert await ids(app, status="dead") == dead
        refuse(app)
        await app.actions.requeue(dead, **WHO)
        assert await app.drain() == 3
        assert published(app, "a") == [1, 2, 3]


async def test_under_block_discarding_the_head_lets_followers_go(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Strict)
    async with app:
        refuse(app, 1)
        async with app.transaction() as tx:
            await app.outbox.append_many(tx, [Strict(key="a", n=1), Strict(key="a", n=2)])
        await app.drain()
        assert published(app) == []
        assert len(await app.actions.discard(Filter(status="dead"), **WHO)) == 1
        assert await app.drain() == 1
        assert published(app) == [2]


# ---------------------------------------------------------------- discard and bury


async def test_a_discard_leaves_a_receipt_that_says_by_whom(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await note(app, "a", 1, 2)
        first, second = await ids(app)
        assert await app.actions.discard([first], actor="ann", reason="a mistake") == [first]
        assert await app.actions.discard([first], actor="ann", reason="a mistake") == []
        story = await app.insight.event(first)
        assert story.deliveries == []
        (receipt,) = story.receipts
        assert (receipt.outcome, receipt.actor, receipt.worker, receipt.attempts) == ("discarded", "ann", None, 0)
        (audit,) = await app.insight.audits(target=str(first))
        assert (audit["action"], audit["actor"], audit["reason"]) == ("discard", "ann", "a mistake")
        assert audit["detail"] == {"destination": "default", "status": "pending", "prior_attempts": 0}
        assert await app.drain() == 1
        assert await ids(app, status="sent") == [second]
        assert published(app) == [2]


async def test_a_discard_takes_every_open_status(database_url: str) -> None:
    app = routed_app(database_url, retry={"base_delay_seconds": 3600, "jitter_factor": 0})
    async with app:
        refuse(app, 1)
        await note(app, "a", 1)
        await app.drain()
        refuse(app, 2, outcome=Failed(Fault("Slow")))
        await note(app, "b", 2)
        await app.drain()
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="c", n=3), available_at=datetime.now(UTC) + timedelta(days=1))
        await note(app, "d", 4)
        counts = await app.insight.counts()
        assert [counts[status] for status in ("dead", "failed", "scheduled", "pending")] == [1, 1, 1, 1]
        assert len(await app.actions.discard(Filter(type="test.noted"), **WHO)) == 4
        assert set((await app.insight.counts()).values()) == {0}
        assert len(await ids(app, status="discarded")) == 4


async def test_what_is_buried_is_dead_and_can_be_requeued(database_url: str) -> None:
    async with routed_app(database_url) as app:
        await note(app, "a", 1, 2)
        first, _ = await ids(app)
        assert await app.actions.bury([first], **WHO) == [first]
        assert await app.actions.bury([first], **WHO) == []
        (letter,) = await app.insight.list(status="dead")
        assert (letter.event_id, letter.error) == (first, "Buried")
        await app.drain()
        assert published(app) == [2]
        await app.actions.requeue([first], **WHO)
        await app.drain()
        assert published(app) == [2, 1]


# ---------------------------------------------------------------- replay


async def test_a_replay_delivers_stored_events_again_as_new_work(database_url: str) -> None:
    async with routed_app(database_url) as app:
        async with app.transaction() as tx:
            first = await app.outbox.append(tx, Noted(key="a", n=1))
            await app.outbox.append_many(tx, [Noted(key="a", n=2), Noted(key="b", n=3)])
        await app.drain()
        assert await app.actions.replay([first], to="default", **WHO) == [first]
        assert await app.actions.replay([first], to="default", **WHO) == [], "it is open there already"
        await app.drain()
        assert (published(app, "a"), published(app, "b")) == ([1, 2, 1], [3])
        story = await app.insight.event(first)
        assert [receipt.outcome for receipt in story.receipts] == ["sent", "sent"]
        (audit,) = await app.insight.audits(target=str(first))
        assert (audit["action"], audit["detail"]) == ("replay", {"destination": "default"})
        replayed = await app.actions.replay(Filter(status="sent", key="a"), to="default", **WHO)
        assert len(replayed) == 2
        await app.drain()
        assert published(app, "a")[3:] == [1, 2]


async def test_a_replay_reaches_a_handler_that_came_later(database_url: str) -> None:
    async with routed_app(database_url) as before:
        await note(before, "a", 1, 2)
        await before.drain()
    app = routed_app(database_url)
    handled: list[int] = []

    @app.on(Noted, name="late")
    async def late(noted: Noted, ctx: Context) -> None:
        handled.append(noted.n)

    async with app:
        with pytest.raises(NotFound, match="handler:late"):
            await app.actions.replay(Filter(), to="handler:late", **WHO)
        await app.drain()  # a worker makes its destinations known
        assert len(await app.actions.replay(Filter(type="test.noted"), to="handler:late", **WHO)) == 2
        await app.drain()
        assert handled == [1, 2]


@pytest.mark.parametrize("destination", ["nowhere", "route"])
async def test_a_replay_to_an_unknown_destination_is_refused(database_url: str, destination: str) -> None:
    async with routed_app(database_url) as app:
        await note(app, "a", 1)
        await app.drain()
        with pytest.raises(NotFound):
            await app.actions.replay(Filter(), to=destination, **WHO)
        assert await app.insight.audits() == []


# ---------------------------------------------------------------- pause and resume


async def test_a_paused_handler_waits_and_others_go_on(database_url: str) -> None:
    app = routed_app(database_url)
    handled: list[int] = []

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> None:
        handled.append(noted.n)

    async with app, workers(app) as (worker,):
        await worker.tick()
        assert await app.actions.pause("handler:handler", **WHO)
        assert not await app.actions.pause("handler:handler", **WHO)
        await worker.tick()
        await note(app, "a", 1, 2)
        await worker.drain_once()
        assert (handled, published(app)) == ([], [1, 2])
        assert (await app.insight.counts())["pending"] == 2
        assert await app.actions.resume("handler:handler", **WHO)
        assert not await app.actions.resume("handler:handler", **WHO)
        await worker.tick()
        while (await worker.drain_once())[0]:
            pass
        assert handled == [1, 2]
        audited = [one["action"] for one in await app.insight.audits(target="handler:handler")]
        assert audited == ["resume", "pause"]


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_a_destination_that_nobody_knows_cannot_be_paused(database_url: str, action: str) -> None:
    async with routed_app(database_url) as app:
        with pytest.raises(NotFound):
            await getattr(app.actions, action)("nowhere", **WHO)


# ---------------------------------------------------------------- audit


async def test_every_changed_delivery_has_its_audit_record(database_url: str) -> None:
    app = routed_app(database_url)
    app.route(Noted, to="other")
    async with app:
        refuse(app, 1)
        refuse(app, 1, broker="other")
        await note(app, "a", 1)
        await app.drain()
        (one,) = set(await ids(app, status="dead"))
        assert await app.actions.requeue([one], actor="ann", reason="the broker is back") == [one]
        found = await app.insight.audits(target=str(one))
        assert {(audit["actor"], audit["action"], audit["reason"]) for audit in found} == {
            ("ann", "requeue", "the broker is back")
        }
        assert {audit["detail"]["destination"] for audit in found} == {"default", "other"}
        assert {audit["detail"]["prior_attempts"] for audit in found} == {1}
        assert all("Bad" in audit["detail"]["prior_error"] for audit in found)


@pytest.mark.parametrize("lacking", ["actor", "reason"])
@pytest.mark.parametrize("action", ["requeue", "discard", "bury", "replay", "pause", "resume"])
async def test_an_action_without_actor_or_reason_is_refused(sqlite_url: str, action: str, lacking: str) -> None:
    async with routed_app(sqlite_url) as app:
        await note(app, "a", 1)
        what: Any = "default" if action in {"pause", "resume"} else await ids(app)
        options: dict[str, Any] = {**WHO, lacking: "  "} | ({"to": "default"} if action == "replay" else {})
        with pytest.raises(ConfigurationError, match="actor and a reason"):
            await getattr(app.actions, action)(what, **options)
        del options[lacking]
        with pytest.raises(TypeError):
            await getattr(app.actions, action)(what, **options)
        assert await app.insight.audits() == []
        assert await app.drain() == 1
