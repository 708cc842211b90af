"""Sagas under several workers, in transactions of every kind, and started from code without an event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import asyncpg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from postlude import Context, Err, Event, EventHandler, Ok, Postlude, Saga, SagaDef, SagaStep, Settings, event, step
from postlude.testing.clock import ManualClock
from tests.engine import until, workers
from tests.saga_books import WHO, Faults, Order, append, books, finish, is_quiet, start, told, write, written


@event(key="id")
class Begun(Event):
    id: str


@event
class Noted(Event):
    id: str


@event
class Unnoted(Event):
    id: str


class Note(EventHandler[Begun, Noted, Unnoted]):
    """Without a loop: it runs in a thread."""

    def __init__(self, says: str = "") -> None:
        self.says = says

    def handle(self, begun: Begun, ctx: Any) -> Ok[Noted] | Err[Unnoted]:  # type: ignore[override]
        if isinstance(ctx.tx, Session):
            ctx.tx.execute(text("INSERT INTO effect (what) VALUES (:what)"), {"what": begun.id})
        if begun.id == "bad":
            return Err(Unnoted(id=begun.id))
        return Ok(Noted(id=begun.id))


class Noting(SagaDef[Begun, str]):
    name: ClassVar[str] = "noting"
    correlation_field: ClassVar[str] = "id"
    steps: ClassVar[tuple[SagaStep, ...]] = (
        SagaStep("note", handler=Note, success=Noted, failure=Unnoted, compensation=None),
    )


def numbered(n: int) -> Any:
    async def act(state: Order, ctx: Context) -> Ok[int]:
        await write(ctx.tx, f"{state.order} {n}")
        return Ok(n)

    return act


async def undo(state: Order, ctx: Context) -> None:
    await write(ctx.tx, f"{state.order} undo {ctx.result}")


async def refuse(state: Order, ctx: Context) -> Ok[None] | Err[str]:
    return Err("No") if state.total else Ok(None)


async def test_branches_of_many_runs_join_under_several_workers(database_url: str) -> None:
    branches = [step(numbered(n), undo=undo, name=f"b{n}") for n in range(3)]
    saga = Saga("wide", state=Order).parallel(*branches).step(refuse, undo=None)
    async with books(database_url) as app:
        app.sagas.register(saga)
        ids = [await start(app, saga, Order(f"o-{n}", n % 2)) for n in range(12)]
        async with app.worker(), app.worker():
            views = [await app.sagas.wait(one, timeout=40) for one in ids]
    assert [view.status for view in views] == ["completed", "compensated"] * 6
    done = await written(database_url)
    for n in range(12):
        mine = [what.partition(" ")[2] for what in done if what.startswith(f"o-{n} ")]
        assert sorted(mine[:3]) == ["0", "1", "2"]
        order = [
            line.step.removeprefix("b")
            for line in views[n].history
            if line.what == "done" and line.step and line.step != "refuse"
        ]
        assert mine[3:] == ([f"undo {one}" for one in reversed(order)] if n % 2 else []), "the last one done first"


async def test_whatever_commits_are_lost_every_run_ends_as_written(database_url: str) -> None:
    saga = Saga("chain", state=Order)
    for n in range(3):
        saga = saga.step(numbered(n), undo=undo, name=f"s{n}")
    saga = saga.step(refuse, undo=None)
    async with books(database_url) as app:
        app.sagas.register(saga)
        faults = Faults(app)
        ids = [await start(app, saga, Order(f"o-{n}", n % 2)) for n in range(20)]
        faults.strike_often(seed=5)
        async with app.worker():
            views = [await app.sagas.wait(one, timeout=60) for one in ids]
            faults.stop()
            await until(lambda: is_quiet(app))
    assert faults.struck > 10
    assert [view.status for view in views] == ["completed", "compensated"] * 10
    done = await written(database_url)
    for n in range(20):
        mine = [what.partition(" ")[2] for what in done if what.startswith(f"o-{n} ")]
        assert mine == ["0", "1", "2", *(["undo 2", "undo 1", "undo 0"] if n % 2 else [])]


async def test_triggers_of_one_process_that_come_at_once_start_one_run(database_url: str) -> None:
    async with books(database_url) as app:
        app.sagas.register(Noting)
        app.register(Note())
        async with workers(app, 2) as made:
            await asyncio.gather(*(append(app, Begun(id="x")) for _ in range(5)))
            for worker in made:
                await worker.tick()
            await asyncio.gather(*(worker.drain_once() for worker in made))
        instance = await app.store.sagas.newest("noting", "x")
        assert instance is not None
        assert instance.generation == 1
        assert instance.status == "running"
        await app.drain()
        assert (await app.sagas.get(instance.id)).status == "completed"


async def test_what_a_step_did_when_its_deadline_passed_meanwhile_is_rolled_back(postgres_url: str) -> None:
    async with books(postgres_url) as app:

        async def has_turned() -> bool:
            return (await app.sagas.get(saga_id)).status != "running"

        async def slow(state: Order, ctx: Context) -> Ok[str]:
            await write(ctx.tx, "slow")
            app.clock.advance(6)
            await until(has_turned)
            return Ok("done")

        saga = Saga("slow", state=Order).step(slow, undo=undo, deadline=timedelta(seconds=5))
        app.sagas.register(saga)
        saga_id = await start(app, saga, Order("o-1"))
        async with app.worker():
            view = await app.sagas.wait(saga_id, timeout=30)
            assert (view.status, view.error) == ("compensated", "slow:Deadline")
            await until(lambda: is_quiet(app))
        assert await written(postgres_url) == ["o-1 undo None"]


async def test_an_operators_order_while_a_step_runs_is_followed(postgres_url: str) -> None:
    async with books(postgres_url) as app:

        async def slow(state: Order, ctx: Context) -> Ok[str]:
            await write(ctx.tx, "slow")
            assert ctx.saga_id is not None
            await app.sagas.cancel(ctx.saga_id, **WHO)
            return Ok("done")

        saga = Saga("slow", state=Order).step(slow, undo=undo).step(refuse, undo=None)
        app.sagas.register(saga)
        view = await finish(app, saga, Order("o-1"))
        assert (view.status, view.error) == ("compensated", "slow:Cancelled")
        assert await written(postgres_url) == ["slow", "o-1 undo done"], "what runs is let end, then undone"


@pytest.mark.parametrize("id", ["good", "bad"])
async def test_a_sync_step_runs_in_the_thread_of_its_session(postgres_url: str, id: str) -> None:
    async with books(postgres_url):
        pass
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    app = Postlude(postgres_url, transactions=sessionmaker(engine), settings=Settings.load(environ={}))
    app.clock = ManualClock()
    app.sagas.register(Noting)
    app.register(Note())
    try:
        async with app:
            await append(app, Begun(id=id))
            await app.drain()
            instance = await app.store.sagas.newest("noting", id)
        assert instance is not None
        assert instance.status == ("completed" if id == "good" else "compensated")
        assert await written(postgres_url) == (["good"] if id == "good" else [])
    finally:
        engine.dispose()


async def test_a_step_gets_its_transaction_from_the_pool_that_was_given(postgres_url: str) -> None:
    async with books(postgres_url):
        pass
    saga = Saga("pooled", state=Order).step(numbered(1), undo=undo).step(refuse, undo=None)
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=3) as pool:
        app = Postlude(postgres_url, transactions=pool, settings=Settings.load(environ={}))
        app.clock = ManualClock()
        app.sagas.register(saga)
        async with app:
            async with pool.acquire() as connection, connection.transaction():
                saga_id = await app.sagas.start(connection, saga, Order("o-1", 1))
            await app.drain()
            assert (await app.sagas.get(saga_id)).status == "compensated"
    assert await written(postgres_url) == ["o-1 1", "o-1 undo 1"]


def test_sync_code_starts_sagas_on_its_own_connection(sqlite_url: str) -> None:
    saga = Saga("plain", state=Order).step(refuse, undo=None)
    app = Postlude(sqlite_url, settings=Settings.load(environ={}))
    app.sagas.register(saga)
    app.sync.start()
    with _transaction(sqlite_url) as connection:
        saga_id = app.sync.sagas.start(connection, saga, Order("o-1"))
    assert app.sync.drain() == 1
    assert app.sync.sagas.get(saga_id).status == "completed"


@contextmanager
def _transaction(url: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")


async def test_a_type_that_no_step_waits_for_any_more_is_noted(database_url: str) -> None:
    @event
    class Waited(Event):
        id: str

    class Waiting(Noting):
        steps: ClassVar[tuple[SagaStep, ...]] = (*Noting.steps, SagaStep("wait", wait=Waited, compensation=None))

    async with books(database_url) as old, books(database_url) as new:
        for app, saga in ((old, Waiting), (new, Noting)):
            app.sagas.register(saga)
            app.register(Note())
        await append(old, Begun(id="x"))
        await append(old, Waited(id="x"))
        await new.drain()
        instance = await new.store.sagas.newest("noting", "x")
        assert instance is not None
        view = await new.sagas.get(instance.id)
        assert view.status == "completed"
        assert "unexpected" in told(view)
