"""Redaction of a data subject in our own tables: by hand and by erasure, beside workers, operators and sagas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

import pytest

from postlude import (
    ConfigurationError,
    Correction,
    Erasure,
    Err,
    Event,
    EventHandler,
    Filter,
    Ok,
    Postlude,
    Redaction,
    SagaDef,
    SagaStep,
    SubjectRef,
    event,
)
from postlude.calls.resolvers import OWN
from postlude.core.outcome import Failed, Fault, Rejected
from postlude.core.pseudonym import TARGET
from postlude.core.redaction import HEADER
from tests.engine import make_app, query, until, watch, workers

ADA = "customer-4711"
BY: dict[str, Any] = {"actor": "ann", "reason": "request 17"}


@event(type="test.registered", topic="registered", key="customer", subjects=("customer",))
class Registered(Event):
    customer: str
    name: str = "Ada Lovelace"


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    app = make_app(database_url)
    app.route(Registered)
    async with app:
        yield app


async def register(app: Postlude, customer: str = ADA, **options: Any) -> UUID:
    async with app.transaction() as tx:
        return await app.outbox.append(tx, Registered(customer=customer), **options)


async def payload_of(app: Postlude, event_id: UUID) -> bytes:
    return (await app.insight.event(event_id)).event.payload


def messages(app: Postlude) -> list[bytes]:
    return [message.payload for message in app.broker().messages()]


# ---------------------------------------------------------------- by hand


async def test_what_is_pending_is_published_first(app: Postlude) -> None:
    first = await register(app)
    waiting = await app.privacy.redact(ADA, pending="publish_first", **BY)
    assert (waiting.events, waiting.waits, waiting.is_complete) == (0, 1, False)
    assert await app.drain() == 1
    done = await app.privacy.redact(ADA, pending="publish_first", **BY)
    assert (done.events, done.deliveries, done.waits, done.is_complete) == (1, 0, 0, True)
    assert b"Lovelace" in messages(app)[0]
    story = await app.insight.event(first)
    assert (story.event.payload, story.event.headers[HEADER]) == (b"{}", "1")


async def test_what_is_pending_is_discarded_by_choice(app: Postlude) -> None:
    await register(app)
    other = await register(app, "customer-8")
    done = await app.privacy.redact(ADA, pending="discard", **BY)
    assert (done.events, done.deliveries, done.waits) == (1, 1, 0)
    assert await app.drain() == 1
    assert [b"customer-8" in message for message in messages(app)] == [True]
    assert b"Lovelace" in await payload_of(app, other)


async def test_the_trail_says_that_it_was_done_and_not_to_whom(app: Postlude) -> None:
    await register(app)
    done = await app.privacy.redact(ADA, pending="discard", **BY)
    assert done.subject == await app.erasure.pseudonym(ADA)
    records = await app.insight.audits(target=TARGET + done.subject)
    assert [(one["action"], one["actor"], one["reason"]) for one in records] == [("redact", "ann", "request 17")]
    assert ADA not in str(await app.insight.audits(target=None))
    again = await app.privacy.redact(ADA, pending="discard", **BY)
    assert (again.events, again.deliveries, again.sagas, again.waits) == (0, 0, 0, 0)
    assert len(await app.insight.audits(target=TARGET + done.subject)) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"pending": "later", **BY},
        {"pending": "discard", "actor": " ", "reason": "x"},
        {"pending": "discard", "actor": "ann", "reason": ""},
        {"pending": "discard", "actor": "ann", "reason": f"{ADA} asked for it"},
        {"pending": "discard", "actor": ADA, "reason": "x"},
    ],
)
async def test_a_redaction_without_choice_or_reason_is_refused(app: Postlude, given: dict[str, Any]) -> None:
    first = await register(app)
    with pytest.raises(ConfigurationError) as caught:
        await app.privacy.redact(ADA, **given)
    assert ADA not in str(caught.value)
    assert b"Lovelace" in await payload_of(app, first)


async def test_dead_letters_are_discarded_and_never_come_back(app: Postlude) -> None:
    first = await register(app)
    app.broker().fate = lambda _: Rejected(Fault("Bad"))
    await app.drain()
    done = await app.privacy.redact(ADA, pending="publish_first", **BY)
    assert (done.events, done.deliveries) == (1, 1)
    assert await app.actions.requeue([first], **BY) == []
    assert await app.actions.replay([first], to="default", **BY) == []
    assert await app.actions.replay(Filter(type="test.registered"), to="default", **BY) == []
    assert await app.drain() == 0


# ---------------------------------------------------------------- beside workers


async def test_a_worker_that_read_the_delivery_before_does_not_publish_it_redacted(app: Postlude) -> None:
    eyes, done = watch(app), list[Redaction]()

    async def redact(*_: object) -> None:
        if not done:
            done.append(await app.privacy.redact(ADA, pending="discard", **BY))

    first = await register(app)
    eyes.before["events"] = redact
    await app.drain()
    assert [one.events for one in done] == [1]
    assert messages(app) == []
    assert [(one.outcome, one.actor) for one in (await app.insight.event(first)).receipts] == [("discarded", "ann")]
    assert (await app.insight.counts())["dead"] == 0


async def test_an_open_delivery_of_a_redacted_event_dies_visibly(app: Postlude, database_url: str) -> None:
    """Nobody makes one but raw SQL, or a second consumer of the same message."""
    first = await register(app)
    await app.privacy.redact(ADA, pending="discard", **BY)
    await query(
        database_url, "INSERT INTO postlude_delivery (event_id, destination, lane)"
        " SELECT event_id, 'default', 1 FROM postlude_event",
    )  # fmt: skip
    await app.drain()
    assert messages(app) == []
    (letter,) = await app.insight.list(status="dead")
    assert (letter.event_id, "Redacted" in str(letter.error)) == (first, True)


async def test_a_message_that_comes_after_its_event_was_redacted_brings_nothing_back(
    app: Postlude, database_url: str
) -> None:
    first = await register(app)
    await app.drain()
    await app.privacy.redact(ADA, **BY)
    late = make_app(database_url)
    late._opened_brokers["default"] = app.broker()

    @late.on(Registered, topic="registered", consumer="late", name="late")
    async def take(one: Registered) -> None:
        raise AssertionError(one)

    async with late:
        await late.drain()
        (letter,) = await late.insight.list(status="dead")
        assert (letter.event_id, letter.destination, "Redacted" in str(letter.error)) == (first, "handler:late", True)
    assert [bytes(one) for (one,) in await query(database_url, "SELECT payload FROM postlude_event")] == [b"{}"]


async def test_a_worker_that_is_at_it_is_waited_for(database_url: str) -> None:
    app = make_app(database_url)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.on(Registered, name="welcome", transactional=False)
    async def welcome(_: Registered) -> None:
        begun.set()
        await go_on.wait()

    async with app, app.worker():
        first = await register(app)
        await begun.wait()
        meanwhile = await app.privacy.redact(ADA, pending="discard", **BY)
        assert (meanwhile.events, meanwhile.deliveries, meanwhile.waits) == (0, 0, 1)
        assert b"Lovelace" in await payload_of(app, first)
        go_on.set()
        await _until_redacted(app)
    story = await _story(database_url)
    assert story == [("sent", None)]


async def test_a_failed_delivery_that_is_discarded_is_not_tried_again(app: Postlude) -> None:
    await register(app)
    app.broker().fate = lambda _: Failed(Fault("Slow"))
    async with workers(app) as (worker,):
        await worker.tick()
        await worker.drain_once()
        done = await app.privacy.redact(ADA, pending="discard", **BY)
        assert (done.events, done.deliveries, done.waits) == (1, 1, 0)
        app.broker().fate = None
        await worker.drain_once()
    assert messages(app) == []


# ---------------------------------------------------------------- sagas


@event(type="test.verified", key="customer", subjects=("customer",))
class Verified(Event):
    customer: str
    passport: str = "X-9876"


@event(type="test.refused", key="customer")
class Unverified(Event):
    customer: str


@event(type="test.kept", key="customer")
class Kept(Event):
    customer: str


class Keep(EventHandler[Registered, Kept, Unverified]):
    async def handle(self, event: Registered) -> Ok[Kept] | Err[Unverified]:
        return Ok(Kept(customer=event.customer))


class Onboarding(SagaDef[Registered, str]):
    name: ClassVar[str] = "onboarding"
    correlation_field: ClassVar[str] = "customer"
    steps: ClassVar[tuple[SagaStep, ...]] = (
        SagaStep("keep", handler=Keep, success=Kept, failure=Unverified, compensation=None),
        SagaStep("verify", wait=Verified, failure=Unverified, compensation=None),
    )


async def test_a_process_is_waited_for_and_then_forgets(app: Postlude, database_url: str) -> None:
    app.register(Keep())
    app.sagas.register(Onboarding())
    trigger = await register(app)
    assert (await app.privacy.redact(ADA, pending="discard", **BY)).deliveries == 1  # to the broker, not to the saga
    await app.drain()
    ((name, process_id),) = await query(database_url, "SELECT name, process_id FROM postlude_saga")
    assert (name, process_id) == ("onboarding", ADA)
    living = await app.privacy.redact(ADA, pending="discard", **BY)
    assert (living.events, living.sagas, living.waits) == (0, 0, 1)
    assert b"Lovelace" in await payload_of(app, trigger)
    async with app.transaction() as tx:
        await app.outbox.append(tx, Verified(customer=ADA))
    await app.drain()
    done = await app.privacy.redact(ADA, pending="discard", **BY)
    assert (done.events, done.sagas, done.waits) == (2, 1, 0)
    found = await query(database_url, "SELECT process_id, status, body FROM postlude_saga")
    assert [status for _, status, _ in found] == ["completed"]
    assert not any(word in str(found) for word in (ADA, "Lovelace", "X-9876"))


# ---------------------------------------------------------------- by erasure


async def test_an_erasure_is_not_complete_before_our_own_tables_are(app: Postlude, database_url: str) -> None:
    first = await register(app)
    async with app.transaction() as tx:
        result = await app.erasure.erase_subject(tx, ADA)
    assert len(result.calls) == 1
    app.broker().is_down = True
    await _until_they_wait(app)
    (request,) = (await app.erasure.show(ADA)).requests
    assert (request.status, request.open) == ("open", 1)
    (call,) = await app.erasure.list_scheduled()
    assert (call.resolver, call.attempts) == (OWN, 0)
    app.broker().is_down = False
    app.clock.advance(60)
    await app.drain()
    app.clock.advance(400)  # the longest that our own tables wait
    await app.drain()
    (request,) = (await app.erasure.show(ADA)).requests
    assert request.status == "completed"
    assert len(messages(app)) == 1
    assert await payload_of(app, first) == b"{}"
    assert await query(database_url, "SELECT * FROM postlude_secret") == []
    assert await _left(app, database_url, ADA, "Lovelace") == []


async def _until_they_wait(app: Postlude, since: datetime | None = None) -> datetime:
    """In an outage a drain takes all of its time, which a loaded machine may need to get anywhere."""
    next_look: datetime | None = None

    async def wait() -> bool:
        nonlocal next_look
        await app.drain(timeout=1)
        next_look = next((call.next_attempt_at for call in await app.erasure.list_scheduled()), None)
        return next_look is not None and next_look != since

    await until(wait)
    assert next_look is not None
    return next_look


async def test_that_our_own_tables_wait_is_told_once(app: Postlude) -> None:
    await register(app)
    async with app.transaction() as tx:
        await app.erasure.erase_subject(tx, ADA)
    app.broker().is_down = True
    looked = None
    for _ in range(3):
        looked = await _until_they_wait(app, since=looked)
        app.clock.advance(400)  # they look again
    target = TARGET + await app.erasure.pseudonym(ADA)
    actions = [one["action"] for one in reversed(await app.insight.audits(target=target))]
    assert actions == ["erasure_requested", "erasure_local_completed", "erasure_expiry_scheduled"]


class Deaf:
    """Cannot rectify."""

    name = "deaf"

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        return Erasure()


async def test_an_erasure_forgets_rectifications_that_were_abandoned(app: Postlude, database_url: str) -> None:
    app.resolvers.register(Deaf())
    ref = SubjectRef("deaf", "cus_ada")
    async with app.transaction() as tx:
        await app.erasure.rectify_subject(tx, ADA, [Correction("name", "Ada L.")], [ref])
    await app.drain()
    (abandoned,) = await app.erasure.list_abandoned()
    assert (abandoned.operation, abandoned.subject_id) == ("rectify", ADA)
    async with app.transaction() as tx:
        asked = await app.erasure.erase_subject(tx, ADA, [ref])
    assert len(asked.calls) == 2, "our own tables have something to forget"
    await app.drain()
    assert await app.erasure.list_abandoned() == []
    assert await query(database_url, "SELECT part FROM postlude_secret") == []
    story = await app.erasure.show(ADA)
    assert {one.operation: (one.status, one.discarded) for one in story.requests} == {
        "erase": ("completed", 0), "rectify": ("completed", 1)
    }  # fmt: skip


@pytest.mark.parametrize("pending", ["publish_first", "discard"])
async def test_a_rectification_that_is_to_be_made_is_an_open_delivery(app: Postlude, pending: Any) -> None:
    app.resolvers.register(Deaf())
    async with app.transaction() as tx:
        await app.erasure.rectify_subject(tx, ADA, [Correction("name", "Ada L.")], [SubjectRef("deaf", "cus_ada")])
    done = await app.privacy.redact(ADA, pending=pending, **BY)
    assert (done.deliveries, done.waits) == ((0, 1) if pending == "publish_first" else (1, 0))
    await app.drain()
    assert (await app.privacy.redact(ADA, pending=pending, **BY)).is_complete
    assert (await app.erasure.show(ADA)).calls == []


async def test_an_erasure_drops_the_key_of_the_subject(app: Postlude, database_url: str) -> None:
    subject = await app.erasure.pseudonym(ADA)
    await query(
        database_url, "INSERT INTO postlude_subject (subject, key_id, key)"
        f" VALUES ('{subject}', 'k1', {_bytes(database_url)})",
    )  # fmt: skip
    async with app.transaction() as tx:
        await app.erasure.erase_subject(tx, ADA)
    await app.drain()
    found = await query(database_url, "SELECT key, shredded_at IS NOT NULL FROM postlude_subject")
    assert [(key, bool(is_shredded)) for key, is_shredded in found] == [(None, True)]
    assert (await app.erasure.show(ADA)).requests[0].status == "completed"


@pytest.mark.parametrize("pending", ["publish_first", "discard"])
async def test_what_follows_the_erasure_in_its_transaction_is_redacted_too(database_url: str, pending: str) -> None:
    app = make_app(database_url, erasure={"pending": pending})
    app.route(Registered)
    async with app:
        async with app.transaction() as tx:
            result = await app.erasure.erase_subject(tx, ADA)
            late = await app.outbox.append(tx, Registered(customer=ADA))
        assert (len(result.calls), result.is_complete) == (1, False)
        for _ in range(2):
            await app.drain()
            app.clock.advance(60)  # our own tables look again
        assert (await app.erasure.show(ADA)).requests[0].status == "completed"
        assert await payload_of(app, late) == b"{}"
        assert await _left(app, database_url, ADA, "Lovelace") == []


async def test_what_another_transaction_commits_later_is_redacted_too(any_postgres_url: str) -> None:
    app = make_app(any_postgres_url)
    app.route(Registered)
    async with app:
        async with app.transaction() as theirs:
            late = await app.outbox.append(theirs, Registered(customer=ADA))
            async with app.transaction() as tx:
                await app.erasure.erase_subject(tx, ADA)
        for _ in range(2):
            await app.drain()
            app.clock.advance(60)
        assert await payload_of(app, late) == b"{}"


async def test_tables_that_could_know_a_subject_are_looked_at_before_it_is_gone(app: Postlude) -> None:
    async with app.transaction() as tx:
        result = await app.erasure.erase_subject(tx, "nobody")
    assert (len(result.calls), result.is_complete) == (1, False)
    assert await app.drain() == 1
    assert (await app.erasure.show("nobody")).requests[0].status == "completed"
    target = TARGET + await app.erasure.pseudonym("nobody")
    (found,) = [one for one in await app.insight.audits(target=target) if one["action"] == "erasure_step_succeeded"]
    assert (found["detail"]["resolver"], found["detail"]["already_absent"]) == (OWN, True)


async def test_where_no_event_names_anybody_an_erasure_without_references_is_complete_at_once(
    database_url: str,
) -> None:
    async with make_app(database_url) as app, app.transaction() as tx:
        assert (await app.erasure.erase_subject(tx, "nobody")).is_complete


async def test_our_own_tables_cannot_be_named_nor_registered(app: Postlude) -> None:
    assert app.resolvers.names() == []
    async with app.transaction() as tx:
        with pytest.raises(ConfigurationError):
            await app.erasure.erase_subject(tx, ADA, [SubjectRef(OWN, ADA)])


async def test_an_erasure_redacts_in_the_database_it_was_asked_in(any_postgres_url: str, sqlite_url: str) -> None:
    app = Postlude(any_postgres_url, databases={"edge": sqlite_url}, broker="memory://")
    app.route(Registered)
    async with app:
        for engine in app.databases.values():
            async with engine.transaction() as tx:
                await engine.outbox.append(tx, Registered(customer=ADA))
        await app.drain()
        edge = app.databases["edge"]
        async with edge.transaction() as tx:
            await edge.erasure.erase_subject(tx, ADA)
        await app.drain()
        assert [view.status for view in (await edge.erasure.show(ADA)).requests] == ["completed"]
    (there,), (here,) = [
        await query(url, "SELECT payload FROM postlude_event WHERE type = 'test.registered'")
        for url in (sqlite_url, any_postgres_url)
    ]
    assert (bytes(there[0]), b"Lovelace" in bytes(here[0])) == (b"{}", True)


# ---------------------------------------------------------------- eyes


async def _until_redacted(app: Postlude) -> None:
    async def is_done() -> bool:
        return (await app.privacy.redact(ADA, pending="discard", **BY)).is_complete

    await until(is_done)


async def _story(url: str) -> list[tuple[Any, ...]]:
    return await query(url, "SELECT outcome, actor FROM postlude_receipt")


async def _left(app: Postlude, url: str, *words: str) -> list[str]:
    """The tables in which one of the words still stands."""
    tables = {use.name: str(await query(url, f"SELECT * FROM {use.name}")) for use in await app.store.upkeep.disk_use()}
    return [name for name, text in tables.items() if any(word in text for word in words)]


def _bytes(url: str) -> str:
    return "x'00'" if url.startswith("sqlite") else "'\\x00'::bytea"
