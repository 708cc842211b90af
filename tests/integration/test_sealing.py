"""Sealed events on real databases: stored sealed, handled open, published as the route says, refused with a word."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from postlude import (
    ConfigurationError,
    Context,
    Err,
    Event,
    EventHandler,
    IdConflict,
    KeyRing,
    Message,
    NotEncodable,
    Ok,
    PayloadTooLarge,
    SagaDef,
    SagaStep,
    Sealed,
    event,
    upcast,
)
from postlude.core.sealing import HEADER, TOKEN
from tests.engine import query
from tests.sealing import (
    Address,
    SignedUp,
    Whole,
    app_with,
    append,
    dead_codes,
    handled,
    key_of,
    ring,
    seal_of,
    stored,
    taking,
)

ANN = SignedUp(user_id="u1", email="ann@example.org", homes=(Address("Main 1", "NO"), Address("Main 2", "SE")))
OF_ANN = SignedUp(user_id="u1", email="ann@example.org", person="ann")


@event(type="test.holding", record_only=True)
class Holding(Event):
    value: Any


async def test_a_handler_gets_what_is_stored_sealed(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)
    async with app:
        async with app.transaction() as tx:
            ids = await app.outbox.append_many(tx, [ANN, OF_ANN])
        by_ring, by_subject = [await stored(app, one) for one in ids]
        for one in (by_ring, by_subject):
            assert b"ann@" not in one.payload
            assert b"Main" not in one.payload
        assert b'"country":"NO"' in by_ring.payload
        assert (await seal_of(app, ids[0])).paths == ("/email", "/homes/*/street")
        assert (await seal_of(app, ids[0])).key == "k1"
        assert (await seal_of(app, ids[1])).key is None
        await app.drain()
    assert got == [ANN, OF_ANN]


async def test_a_whole_payload_is_one_token(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got: list[Whole] = []
    app.on(Whole, name="read")(taking(got))
    async with app:
        event_id = await append(app, Whole(note="all of it"))
        payload = (await stored(app, event_id)).payload
        assert msgspec.json.decode(payload, type=str).startswith(TOKEN)
        await app.drain()
    assert got == [Whole(note="all of it")]


async def test_a_subject_has_one_key_and_two_have_that_of_the_ring(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    handled(app)
    async with app:
        first, second = await append(app, OF_ANN), await append(app, OF_ANN)
        assert await seal_of(app, first) == await seal_of(app, second)
        assert (await query(database_url, "SELECT count(*) FROM postlude_subject"))[0][0] == 1
        both = await append(app, ANN, subjects=["ann", "bob"])
        assert (await seal_of(app, both)).key == "k1"
        assert (await query(database_url, "SELECT count(*) FROM postlude_subject"))[0][0] == 1
        ((subject, key_id),) = await query(database_url, "SELECT subject, key_id FROM postlude_subject")
        assert subject == (await seal_of(app, first)).subject
        assert ("ann" in subject, key_id) == (False, "k1")


async def test_two_that_make_the_first_key_of_a_subject_agree(database_url: str) -> None:
    app, other = app_with(database_url, ring("k1")), app_with(database_url, ring("k1"))
    got, _ = handled(app), handled(other)
    async with app, other:
        await asyncio.gather(*(append(one, OF_ANN) for one in (app, other) * 5))
        await app.drain()
        assert (await query(database_url, "SELECT count(*) FROM postlude_subject"))[0][0] == 1
    assert got == [OF_ANN] * 10


async def test_a_key_that_was_rolled_back_is_made_again(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)
    async with app:
        with pytest.raises(ZeroDivisionError):
            async with app.transaction() as tx:
                await app.outbox.append(tx, OF_ANN)
                raise ZeroDivisionError
        assert await query(database_url, "SELECT * FROM postlude_subject") == []
        await append(app, OF_ANN)
        await app.drain()
    assert got == [OF_ANN]


async def test_a_tombstone_without_a_key_gets_one(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)
    async with app:
        subject = (await seal_of(app, await append(app, OF_ANN))).subject
        await app.drain()
        await query(database_url, f"UPDATE postlude_subject SET key = NULL, key_id = NULL WHERE subject = '{subject}'")
        await append(app, OF_ANN)
        await app.drain()
    assert got == [OF_ANN, OF_ANN]


async def test_sync_handles_seal_too(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)

    def work() -> None:
        with app.sync.transaction() as tx:
            app.sync.outbox.append(tx, OF_ANN)
        app.sync.drain()

    await asyncio.to_thread(work)
    assert got == [OF_ANN]


async def test_what_handlers_append_is_sealed(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)

    @event(type="test.began")
    class Began(Event):
        email: Annotated[str, Sealed()]

    @app.on(Began)
    async def began(one: Began, ctx: Any) -> None:
        await ctx.append(SignedUp(user_id="u", email=one.email), id=UUID(int=77), headers=ctx.headers)

    async with app:
        await append(app, Began(email="ann@example.org"))
        await app.drain()
        assert b"ann@" not in (await stored(app, UUID(int=77))).payload
    assert [one.email for one in got] == ["ann@example.org"]


# ---------------------------------------------------------------- same id


async def test_the_same_content_again_is_a_no_op_also_after_rotations(database_url: str) -> None:
    given, of_subject = UUID(int=5), UUID(int=6)
    for keys in (("k1",), ("k1",), ("k2", "k1")):
        async with app_with(database_url, ring(*keys)) as app:
            handled(app)
            assert await append(app, ANN, id=given) == given
            assert await append(app, OF_ANN, id=of_subject) == of_subject
            other = msgspec.structs.replace(ANN, email="bob@example.org")
            with pytest.raises(IdConflict):
                await append(app, other, id=given)
            with pytest.raises(IdConflict):
                await append(app, msgspec.structs.replace(other, person="ann"), id=of_subject)
    async with app_with(database_url, ring("k2", "k1")) as app:
        await app.privacy.rotate()
    async with app_with(database_url, ring("k2")) as app:
        got = handled(app)
        assert await append(app, ANN, id=given) == given
        assert await append(app, OF_ANN, id=of_subject) == of_subject
        with pytest.raises(IdConflict):
            await append(app, msgspec.structs.replace(ANN, email="bob@example.org"), id=given)
        await app.drain()
    assert got == [ANN, OF_ANN]


async def test_the_same_twice_in_one_append_is_one(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)
    async with app:
        async with app.transaction() as tx:
            await app.outbox.append_many(tx, [Message(OF_ANN, id=UUID(int=5)), Message(OF_ANN, id=UUID(int=5))])
        await app.drain()
    assert got == [OF_ANN]


async def test_no_message_of_an_error_keeps_what_was_opened(database_url: str) -> None:
    app = app_with(database_url, ring("k1"), errors={"keep": "message"}, retry={"max_attempts": 1})

    @app.on(SignedUp, name="welcome")
    async def welcome(signed: SignedUp) -> None:
        raise ValueError(f"no mail to {signed.email}")

    async with app:
        event_id = await append(app, ANN)
        await app.drain()
        (said,) = await dead_codes(app, event_id)
    assert said.startswith("ValueError")
    assert "ann@" not in said


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
async def test_nor_does_one_of_a_handler_that_ended_its_transaction(database_url: str, ends: str) -> None:
    app = app_with(database_url, ring("k1"), errors={"keep": "message"}, retry={"max_attempts": 1})

    @app.on(SignedUp, name="welcome")
    async def welcome(signed: SignedUp, ctx: Context) -> None:
        done = ctx.tx.execute(ends)
        if inspect.isawaitable(done):
            await done
        raise ValueError(f"no mail to {signed.email}")

    async with app:
        event_id = await append(app, ANN)
        await app.drain()
        (said,) = await dead_codes(app, event_id)
        (kept,) = await query(database_url, "SELECT last_error FROM postlude_delivery WHERE status = 'dead'")
    assert "ann@" not in f"{said} {kept}"
    assert said.startswith("ValueError" if ends == "ROLLBACK" else "ContractViolation")


# ---------------------------------------------------------------- what cannot be opened


async def test_a_key_that_nobody_knows_makes_a_dead_letter_and_a_requeue_mends_it(database_url: str) -> None:
    async with app_with(database_url, ring("k1")) as app:
        handled(app)
        event_id = await append(app, ANN)
    async with app_with(database_url, ring("k2")) as app:
        handled(app)
        await app.drain()
        assert "key_unknown" in str(await dead_codes(app, event_id))
    async with app_with(database_url, ring("k2", "k1")) as app:
        got = handled(app)
        await app.actions.requeue([event_id], actor="ann", reason="the key is back")
        await app.drain()
    assert got == [ANN]


async def test_a_broken_seal_makes_a_dead_letter(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)
    async with app:
        event_id = await append(app, Whole(note="x"))
        other = await append(app, ANN)
        whole = (await stored(app, event_id)).payload
        coded = msgspec.json.encode({"user_id": "u", "email": msgspec.json.decode(whole)})
        hexed = f"x'{coded.hex()}'" if app.store.dialect == "sqlite" else f"'\\x{coded.hex()}'"
        await query(database_url, f"UPDATE postlude_event SET payload = {hexed} WHERE type = 'test.signed_up'")
        await app.drain()
        assert "broken_seal" in str(await dead_codes(app, other))
    assert got == []


async def test_a_route_that_opens_rejects_what_it_cannot_and_sends_the_rest(database_url: str) -> None:
    async with app_with(database_url, ring("k1")) as app:
        app.route(SignedUp)
        lost = await append(app, ANN)
    async with app_with(database_url, ring("k2")) as app:
        app.route(SignedUp, open_sealed=True)
        await append(app, msgspec.structs.replace(ANN, user_id="u2"))
        await app.drain()
        assert "key_unknown" in str(await dead_codes(app, lost))
        (sent,) = app.broker().messages()
        assert b"ann@" in sent.payload


async def test_a_key_service_that_is_down_burns_no_attempts(database_url: str) -> None:
    async with app_with(database_url, ring("k1")) as app:
        handled(app)
        event_id = await append(app, ANN)
    is_down = True

    async def find(key_id: str) -> bytes:
        if is_down:
            raise OSError("down")
        return key_of(key_id)

    async with app_with(database_url, KeyRing(find, active="k1")) as app:
        got = handled(app)
        await app.run_once()
        (delivery,) = (await app.insight.event(event_id)).deliveries
        assert (delivery.attempts, got) == (0, [])
        is_down = False
        await app.drain()
    assert got == [ANN]


async def test_a_payload_that_merely_looks_sealed_is_not_touched(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got: list[Any] = []

    @event(type="test.looks", record_only=True)
    class Looks(Event):
        text: str
        seal: dict[str, Any]

    app.on(Looks)(taking(got))
    signed = handled(app)
    looking = Looks(text=f"{TOKEN}QUJD", seal={"scheme": 1, "key": "k1", "paths": ["/text"]})
    inside = SignedUp(user_id="u", email=f"{TOKEN}QUJD")
    async with app:
        event_id = await append(app, looking)
        assert HEADER not in (await stored(app, event_id)).headers
        await append(app, inside)
        await app.drain()
    assert (got, signed) == ([looking], [inside])


async def test_without_keys_an_append_and_a_worker_are_refused(database_url: str) -> None:
    app = app_with(database_url, None)
    app.route(SignedUp)
    async with app:
        with pytest.raises(ConfigurationError, match="no key ring") as refused:
            await append(app, ANN)
        assert "POSTLUDE_KEYS" in refused.value.hint
        handled(app)
        with pytest.raises(ConfigurationError, match="a handler takes it"):
            await app.drain()
        with pytest.raises(ConfigurationError, match="no key ring to rotate"):
            await app.privacy.rotate()


async def test_a_mark_beside_what_only_a_type_checker_knows_is_not_overlooked_for_want_of_keys(sqlite_url: str) -> None:
    @event(record_only=True)
    @dataclasses.dataclass
    class Marked:
        email: Annotated[str, Sealed()]
        other: NotThere | None = None  # type: ignore[name-defined]  # noqa: F821 - that is the point

    @event(record_only=True)
    @dataclasses.dataclass
    class Plain:
        other: NotThere | None = None  # type: ignore[name-defined]  # noqa: F821 - likewise

    async with app_with(sqlite_url, None) as app:
        with pytest.raises(ConfigurationError, match="not there at run time"):
            await append(app, Marked(email="ann@example.org"))
        await append(app, Plain())


async def test_a_mark_that_the_declaration_hides_is_refused(sqlite_url: str) -> None:
    async with app_with(sqlite_url, ring("k1")) as app:
        with pytest.raises(NotEncodable, match=r"Address\.street") as caught:
            await append(app, Holding(value=[Address(street="SECRET", country="x")]))
        assert "SECRET" not in str(caught.value)
        await append(app, Holding(value=[{"country": "x"}]))


async def test_the_size_is_that_of_what_is_stored(sqlite_url: str) -> None:
    app = app_with(sqlite_url, ring("k1"), payload={"max_bytes": 120})
    handled(app)
    async with app:
        with pytest.raises(PayloadTooLarge, match="when it is sealed"):
            await append(app, SignedUp(user_id="u", email="x" * 50))


async def test_an_old_version_is_opened_before_it_is_upcast(database_url: str) -> None:
    @event(type="test.moved", version=1)
    class Before(Event):
        name: Annotated[str, Sealed()]

    @event(type="test.moved", version=2)
    class After(Event):
        first: Annotated[str, Sealed()]
        last: str

    @upcast(After, 1)
    def v1(old: dict[str, Any]) -> dict[str, Any]:
        first, last = old["name"].split()
        return {"first": first, "last": last}

    async with app_with(database_url, ring("k1")) as app:
        app.on(Before, name="h")(taking([]))
        await append(app, Before(name="Ann Lee"))
    got: list[Any] = []
    async with app_with(database_url, ring("k1")) as app:
        app.on(After, name="h")(taking(got))
        await app.drain()
    assert got == [After(first="Ann", last="Lee")]


# ---------------------------------------------------------------- sagas


@event(type="test.ordered")
class Ordered(Event):
    order_id: str
    email: Annotated[str, Sealed()]


@event(type="test.mailed")
class Mailed(Event):
    order_id: str
    to: Annotated[str, Sealed()]


@event(type="test.refused")
class Refused(Event):
    order_id: str


@event(type="test.finished", record_only=True)
class Finished(Event):
    order_id: str
    thanks: Annotated[str, Sealed()]


class Order(SagaDef[Ordered, str]):
    name = "order"
    correlation_field = "order_id"
    steps = (SagaStep("mail", wait=Mailed, failure=Refused, compensation=None),)

    async def on_completed(self, id: str) -> Event:
        return Finished(order_id=id, thanks="thank you ann")

    async def on_failed(self, id: str, error: str) -> Event:
        return Refused(order_id=id)


async def test_a_saga_gets_plain_events_and_appends_sealed_ones(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    app.sagas.register(Order())
    app.route(Finished)
    async with app:
        await append(app, Ordered(order_id="o1", email="ann@example.org"))
        await app.drain()
        await append(app, Mailed(order_id="o1", to="ann@example.org"))
        await app.drain()
        assert await query(database_url, "SELECT status FROM postlude_saga") == [("completed",)]
        (message,) = app.broker().messages()
        assert b"thank you" not in message.payload
        assert HEADER in message.headers


class Fails(EventHandler[Ordered, Mailed, Refused]):
    async def handle(self, event: Ordered) -> Ok[Mailed] | Err[Refused]:
        raise ValueError(f"no mail to {event.email}")


class FailingStep(Order):
    name = "failing_step"
    steps = (SagaStep("mail", handler=Fails, success=Mailed, failure=Refused, compensation=None),)


class FailingTrigger(Order):
    name = "failing_trigger"
    is_appended = False

    def extract_id(self, trigger: Ordered) -> str:
        if not self.is_appended:
            self.is_appended = True
            return trigger.order_id
        raise ValueError(f"no id of {trigger.email}")


@pytest.mark.parametrize("saga", [FailingStep, FailingTrigger])
async def test_no_message_of_an_error_in_a_saga_keeps_what_was_opened(database_url: str, saga: type[Order]) -> None:
    later = {"base_delay_seconds": 3600, "jitter_factor": 0}
    app = app_with(database_url, ring("k1"), errors={"keep": "message"}, retry=later)
    app.register(Fails())
    app.sagas.register(saga())
    async with app:
        await append(app, Ordered(order_id="o1", email="ann@example.org"))
        await app.drain()
        found = await query(
            database_url,
            "SELECT last_error FROM postlude_delivery WHERE last_error IS NOT NULL AND destination LIKE 'saga:%'",
        )
    assert len(found) == 1
    assert "ValueError" in str(found)
    assert "ann@" not in str(found)
