"""Typed sagas, driven through the app: triggers, signals, participants, and every way an event can come at a bad time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import pytest

from postlude import (
    ConfigurationError,
    Context,
    Err,
    Event,
    EventHandler,
    Ok,
    Postlude,
    SagaDef,
    SagaNotFound,
    SagaRefused,
    SagaStep,
    SagaView,
    Stuck,
    event,
)
from tests.engine import query, until
from tests.saga_books import WHO, Faults, append, books, is_quiet, start, told, write, written


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str
    total: int = 0


@event
class Reserved(Event):
    order_id: str
    shelf: str


@event
class NotReserved(Event):
    order_id: str


@event
class Release(Event):
    order_id: str
    shelf: str | None = None


@event
class Approved(Event):
    order_id: str
    by: str = "ann"


@event
class Refused(Event):
    order_id: str


@event
class Shipped(Event):
    order_id: str
    by: str = ""


@event
class NotShipped(Event):
    order_id: str


@event
class Fulfilled(Event):
    order_id: str


@event
class Unfulfilled(Event):
    order_id: str
    error: str


@event
class TooLate(Event):
    order_id: str
    what: str


class Reserve(EventHandler[OrderPlaced, Reserved, NotReserved]):
    async def handle(self, placed: OrderPlaced, ctx: Context) -> Ok[Reserved] | Err[NotReserved]:
        await write(ctx.tx, f"reserve {placed.order_id}")
        if placed.total > 100:
            return Err(NotReserved(order_id=placed.order_id))
        return Ok(Reserved(order_id=placed.order_id, shelf="A1"))


class Unreserve(EventHandler[Release, Any, Any]):
    async def handle(self, release: Release, ctx: Context) -> Ok[Any] | Err[Any]:
        await write(ctx.tx, f"release {release.shelf} {ctx.result.shelf}")
        return Ok(None)


class Ship(EventHandler[Approved, Shipped, NotShipped]):
    async def handle(self, approved: Approved, ctx: Context) -> Ok[Shipped] | Err[NotShipped]:
        await write(ctx.tx, f"ship {approved.by}")
        if approved.by == "nobody":
            return Err(NotShipped(order_id=approved.order_id))
        return Ok(Shipped(order_id=approved.order_id, by=approved.by))


class Fulfil(SagaDef[OrderPlaced, str]):
    name: ClassVar[str] = "fulfil"
    correlation_field: ClassVar[str] = "order_id"
    deadline: ClassVar[timedelta | None] = timedelta(days=7)
    steps: ClassVar[tuple[SagaStep, ...]] = (
        SagaStep("reserve", handler=Reserve, success=Reserved, failure=NotReserved, compensation=Release),
        SagaStep("approve", wait=Approved, failure=Refused, compensation=None, deadline=timedelta(days=1)),
        SagaStep("ship", handler=Ship, success=Shipped, failure=NotShipped, kind="pivot", compensation=None),
    )

    async def on_completed(self, id: str) -> Fulfilled:
        return Fulfilled(order_id=id)

    async def on_failed(self, id: str, error: str) -> Unfulfilled:
        return Unfulfilled(order_id=id, error=error)

    async def on_late(self, id: str, signal: str) -> TooLate:
        return TooLate(order_id=id, what=signal)


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with books(database_url) as app:
        app.sagas.register(Fulfil())
        app.register(Reserve())
        app.register(Unreserve())
        app.register(Ship())
        yield app


async def runs(app: Postlude, process_id: str = "o-1") -> list[SagaView]:
    """Of a process, the first one first."""
    rows = await query(
        app.settings.database or "",
        f"SELECT id FROM postlude_saga WHERE process_id = '{process_id}' ORDER BY generation",
    )
    return [await app.sagas.get(_uuid(row[0])) for row in rows]


def _uuid(stored: Any) -> UUID:
    return UUID(bytes=stored) if isinstance(stored, bytes) else stored


async def only(app: Postlude) -> SagaView:
    (view,) = await runs(app)
    return view


async def types(url: str) -> list[str]:
    rows = await query(url, "SELECT type FROM postlude_event WHERE type <> 'postlude.saga' ORDER BY created_at, type")
    return [row[0] for row in rows]


async def placed(app: Postlude, total: int = 0) -> SagaView:
    """A run that waits for its approval, or has ended."""
    await append(app, OrderPlaced(order_id="o-1", total=total))
    await app.drain()
    return await only(app)


# ---------------------------------------------------------------- triggers


async def test_a_trigger_starts_it_and_a_signal_moves_it_on(app: Postlude, database_url: str) -> None:
    view = await placed(app)
    assert (view.status, view.step, view.process_id) == ("running", "approve", "o-1")
    assert view.waits_for == ("approve: an event, approved or refused",)
    async with app.transaction() as tx:
        await app.sagas.signal(tx, view.id, Approved(order_id="o-1", by="bob"))
    await app.drain()
    view = await only(app)
    assert view.status == "completed"
    assert await written(database_url) == ["reserve o-1", "ship bob"]
    assert set(await types(database_url)) == {"order.placed", "reserved", "approved", "fulfilled", "shipped"}
    assert await is_quiet(app)
    assert len((await app.insight.list(saga=view.id, status="sent")).items) == 3, "two steps and a signal"


async def test_its_handlers_are_no_destinations_of_their_own(app: Postlude) -> None:
    await placed(app)
    assert {row["name"] for row in await app.store.records.destinations()} >= {"saga:fulfil"}
    names = {row["name"] for row in await app.store.records.destinations()}
    assert not any(name.startswith("handler:") for name in names)


async def test_the_same_trigger_again_is_no_second_run(app: Postlude) -> None:
    (event_id,) = await append(app, OrderPlaced(order_id="o-1"))
    await app.drain()
    await app.actions.replay([event_id], to="saga:fulfil", **WHO)
    await app.drain()
    assert "duplicate" in told(await only(app))
    await append(app, Approved(order_id="o-1"))
    await app.drain()
    await app.actions.replay([event_id], to="saga:fulfil", **WHO)
    await app.drain()
    view = await only(app)
    assert (view.status, told(view)[-1]) == ("completed", "late")


async def test_another_trigger_starts_the_next_generation_when_the_first_has_ended(app: Postlude) -> None:
    (first,) = await append(app, OrderPlaced(order_id="o-1", total=500))
    await app.drain()
    await append(app, OrderPlaced(order_id="o-1"))
    await append(app, OrderPlaced(order_id="o-1"))
    await app.drain()
    one, two = await runs(app)
    assert (one.generation, one.status, two.generation, two.status) == (1, "compensated", 2, "running")
    assert "duplicate" in told(two), "never two at a time"
    await app.actions.replay([first], to="saga:fulfil", **WHO)
    await append(app, Approved(order_id="o-1"))
    await app.drain()
    await app.actions.replay([first], to="saga:fulfil", **WHO)
    await app.drain()
    assert len(await runs(app)) == 2, "an old trigger starts nothing"


async def test_started_by_hand_it_takes_its_process_from_the_trigger(app: Postlude) -> None:
    saga_id = await start(app, Fulfil, OrderPlaced(order_id="o-7"))
    with pytest.raises(SagaRefused, match="runs for 'o-7' already"):
        await start(app, Fulfil, OrderPlaced(order_id="o-7"))
    await append(app, Approved(order_id="o-7"))
    await app.drain()
    assert (await app.sagas.get(saga_id)).status == "completed"


async def test_an_err_event_is_appended_and_on_failed_tells_of_the_end(app: Postlude, database_url: str) -> None:
    failed: list[Unfulfilled] = []

    @app.on(Unfulfilled)
    async def tell(unfulfilled: Unfulfilled) -> None:
        failed.append(unfulfilled)

    view = await placed(app, total=500)
    assert (view.status, view.error) == ("compensated", "reserve:NotReserved")
    assert await written(database_url) == []
    assert set(await types(database_url)) == {"order.placed", "not.reserved", "unfulfilled"}
    assert failed == [Unfulfilled(order_id="o-1", error="reserve:NotReserved")]


# ---------------------------------------------------------------- signals


async def test_a_refusal_undoes_what_was_done(app: Postlude, database_url: str) -> None:
    await placed(app)
    await append(app, Refused(order_id="o-1"))
    await app.drain()
    view = await only(app)
    assert (view.status, view.error) == ("compensated", "approve:refused")
    assert await written(database_url) == ["reserve o-1", "release A1 A1"]
    assert await is_quiet(app)


async def test_a_signal_that_comes_early_is_kept(app: Postlude) -> None:
    await append(app, OrderPlaced(order_id="o-1"), Approved(order_id="o-1", by="bob"))
    await app.drain()
    view = await only(app)
    assert view.status == "completed"
    assert "early" in told(view)


async def test_a_signal_twice_counts_once(app: Postlude, database_url: str) -> None:
    await placed(app)
    (event_id,) = await append(app, Approved(order_id="o-1"))
    await app.drain()
    await app.actions.replay([event_id], to="saga:fulfil", **WHO)
    await app.drain()
    assert await written(database_url) == ["reserve o-1", "ship ann"]
    assert "too.late" not in await types(database_url), "it is known"


async def test_a_signal_after_the_end_is_recorded_and_told(app: Postlude, database_url: str) -> None:
    await placed(app, total=500)
    await append(app, Approved(order_id="o-1"))
    await app.drain()
    view = await only(app)
    assert (view.status, told(view)[-1]) == ("compensated", "late")
    assert "too.late" in await types(database_url)


async def test_a_signal_for_no_run_is_not_in_the_way(app: Postlude) -> None:
    await append(app, Approved(order_id="nobody"))
    assert await app.drain() == 1
    assert await is_quiet(app)


async def test_a_signal_is_refused_when_it_cannot_be_meant(app: Postlude) -> None:
    view = await placed(app)
    async with app.transaction() as tx:
        with pytest.raises(SagaNotFound):
            await app.sagas.signal(tx, "00000000-0000-0000-0000-000000000000", Approved(order_id="o-1"))
        with pytest.raises(SagaRefused, match="belongs to 'o-2', and saga"):
            await app.sagas.signal(tx, view.id, Approved(order_id="o-2"))
        with pytest.raises(SagaRefused, match="does not wait for Release anywhere"):
            await app.sagas.signal(tx, view.id, Release(order_id="o-1"))


async def test_a_wait_that_misses_its_deadline_turns_it_back(app: Postlude, database_url: str) -> None:
    await placed(app)
    app.clock.advance(86_500)
    await app.drain()
    view = await only(app)
    assert (view.status, view.error) == ("compensated", "approve:Deadline")
    assert await written(database_url) == ["reserve o-1", "release A1 A1"]
    assert await is_quiet(app), "the saga's own deadline is cancelled"


async def test_a_signal_that_dies_leaves_the_run_stuck_until_it_is_requeued(database_url: str) -> None:
    is_broken = [True]

    class Moody(Fulfil):
        async def on_completed(self, id: str) -> Fulfilled:
            if is_broken:
                raise RuntimeError("not in the mood")
            return Fulfilled(order_id=id)

    async with books(database_url) as app:
        stuck: list[Stuck] = []
        app.sagas.on_stuck(stuck.append)
        app.sagas.register(Moody())
        for handler in (Reserve(), Unreserve(), Ship()):
            app.register(handler)
        await append(app, OrderPlaced(order_id="o-1"), Approved(order_id="o-1"))
        await app.drain()
        view = await only(app)
        assert (view.status, view.error) == ("stuck", "signal:HookFailed")
        await until(lambda: [one.code for one in stuck] == ["HookFailed"])
        (dead,) = (await app.insight.list(status="dead")).items
        assert dead.destination == "saga:fulfil"
        is_broken.clear()
        await app.actions.requeue([dead.event_id], **WHO)
        await app.sagas.retry(view.id, **WHO)
        await app.drain()
        assert (await only(app)).status == "completed"
        assert await written(database_url) == ["reserve o-1", "ship ann"]


async def test_an_event_that_cannot_be_read_leaves_its_run_stuck(app: Postlude, database_url: str) -> None:
    view = await placed(app)
    (event_id,) = await append(app, Approved(order_id="o-1"))
    broken = "X'7b'" if database_url.startswith("sqlite") else "'\\x7b'"
    await query(database_url, f"UPDATE postlude_event SET payload = {broken} WHERE type = 'approved'")
    await app.drain()
    view = await app.sagas.get(view.id)
    assert (view.status, view.error) == ("stuck", "signal:DecodeError")
    (dead,) = (await app.insight.list(status="dead")).items
    assert dead.event_id == event_id


@pytest.mark.parametrize("after", [False, True], ids=["before-commit", "after-commit"])
async def test_a_lost_connection_at_any_commit_changes_nothing(database_url: str, *, after: bool) -> None:
    async with books(database_url) as app:
        app.sagas.register(Fulfil())
        for handler in (Reserve(), Unreserve(), Ship()):
            app.register(handler)
        faults = Faults(app)
        for nth in range(1, 6):
            async with app.transaction() as tx:
                order = f"o-{nth}"
                events = [OrderPlaced(order_id=order), Refused(order_id=order)]
                await app.outbox.append_many(tx, events)
            faults.strike(nth, after=after)
            await app.drain()
            faults.strike(0, after=after)
            (view,) = await runs(app, order)
            assert view.status == "compensated", (nth, told(view))
            assert (await written(database_url))[2 * nth - 2 :] == [f"reserve {order}", "release A1 A1"]
        assert faults.struck >= 3
        assert (await types(database_url)).count("unfulfilled") == 5
        assert await is_quiet(app)


# ---------------------------------------------------------------- start-up


async def test_what_is_missing_is_told_at_the_start(database_url: str) -> None:
    async with books(database_url) as app:
        app.sagas.register(Fulfil)
        with pytest.raises(ConfigurationError, match="saga fulfil, step reserve: no Reserve is registered"):
            await app.drain()
        app.register(Reserve())
        with pytest.raises(ConfigurationError, match="saga fulfil, step reserve: nobody handles Release, its undo"):
            await app.drain()
        app.register(Unreserve())
        app.register(Unreserve(), name="again")
        with pytest.raises(ConfigurationError, match="it cannot be told which handler is meant: Unreserve, again"):
            await app.drain()


async def test_one_handler_serves_several_sagas(app: Postlude, database_url: str) -> None:
    class Other(Fulfil):
        name: ClassVar[str] = "other"
        steps: ClassVar[tuple[SagaStep, ...]] = Fulfil.steps[:1]

    app.sagas.register(Other)
    await append(app, OrderPlaced(order_id="o-1"))
    await app.drain()
    assert await written(database_url) == ["reserve o-1", "reserve o-1"]
    assert sorted(view.name for view in await runs(app)) == ["fulfil", "other"]


async def test_a_hook_that_gives_no_event_is_not_the_steps_fault(database_url: str) -> None:
    class Careless(Fulfil):
        async def on_failed(self, id: str, error: str) -> Any:
            return f"{id} {error}"

    async with books(database_url) as app:
        app.sagas.register(Careless())
        for handler in (Reserve(), Unreserve(), Ship()):
            app.register(handler)
        letters: list[Any] = []
        app.on_dead_letter(letters.append)
        view = await placed(app, total=500)
        assert (view.status, view.error) == ("stuck", "signal:HookFailed")
        await until(lambda: [letter.destination for letter in letters] == ["saga:fulfil"])
