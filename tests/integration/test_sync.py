"""The same without an event loop: app.sync on every sync handle, beside a worker, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postlude import ConfigurationError, Event, Message, NotInTransaction, Postlude, Settings, event
from tests.callers import KINDS, Callers, Kind
from tests.conftest import ON_POSTGRES, ON_SQLITE
from tests.databases import finish
from tests.engine import Noted, arrived, routed_app
from tests.matrix import REFUSED, ran

SYNC = [kind for kind in KINDS if not kind.adapter().is_async]
ASYNC = [kind for kind in KINDS if kind.adapter().is_async]


@event(type="test.placed", topic="placed")
class Placed(Event):
    n: int


def _cases(kinds: list[Kind]) -> list[Any]:
    on = {"postgres": ON_POSTGRES[0], "sqlite": ON_SQLITE[0]}
    return [
        pytest.param((kind, on[kind.database].values[0]), marks=on[kind.database].marks, id=kind.id) for kind in kinds
    ]


def sync_app(url: str) -> Postlude:
    app = Postlude(url, broker="memory://", settings=Settings.load(environ={}, pool={"min": 1}))
    app.route(Placed)
    return app


def _done(step: Any) -> Any:
    """The callers of sync handles never wait."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


@pytest.fixture
def url(case: tuple[Kind, str], swept_url: Callable[[str], str]) -> str:
    return swept_url(case[1])


@pytest.fixture
def callers(case: tuple[Kind, str], url: str) -> Iterator[Callers]:
    callers = case[0].callers(url)
    yield callers
    _done(callers.end())


@pytest.mark.parametrize("case", _cases(SYNC))
def test_on_every_sync_handle(
    request: pytest.FixtureRequest, case: tuple[Kind, str], url: str, callers: Callers
) -> None:
    app = sync_app(url)
    handle = _done(callers.open())
    _done(callers.begin(handle))
    one = app.sync.outbox.append(handle, Placed(n=1))
    assert app.sync.outbox.append(handle, Placed(n=1), id=one, correlation_id=str(one)) == one
    assert len(app.sync.outbox.append_many(handle, [Placed(n=2), Message(Placed(n=3))])) == 2
    with app.sync.transaction(handle) as tx:
        assert tx is handle
        app.sync.outbox.append(tx, Placed(n=4))
    _done(callers.commit(handle))
    _done(callers.begin(handle))
    app.sync.outbox.append(handle, Placed(n=5))
    _done(callers.rollback(handle))
    assert app.sync.drain() == 4
    assert len(app.broker().messages("placed")) == 4
    with pytest.raises(NotInTransaction):
        app.sync.outbox.append(_done(callers.autocommit()), Placed(n=6))
    ran(request, case[0], "app.sync")


@pytest.mark.parametrize("case", _cases(ASYNC))
async def test_async_handles_are_refused(request: pytest.FixtureRequest, case: tuple[Kind, str], url: str) -> None:
    ran(request, case[0], "app.sync", REFUSED)
    app = sync_app(url)
    callers = case[0].callers(url)
    handle = await callers.open()
    for refused in (app.sync.outbox.append, app.sync.outbox.append_many):
        with pytest.raises(ConfigurationError, match="belongs to an event loop"):
            refused(handle, [Placed(n=1)])
    await callers.end()


def test_our_own_transactions(database_url: str) -> None:
    app = sync_app(database_url)
    with app.sync.transaction() as tx:
        app.sync.outbox.append(tx, Placed(n=1))
    with pytest.raises(ZeroDivisionError), app.sync.transaction() as tx:
        app.sync.outbox.append(tx, Placed(n=2))
        raise ZeroDivisionError
    assert app.sync.run_once() == 1
    assert app.sync.drain() == 0


def test_a_file_is_made_ready(tmp_path: Path) -> None:
    app = sync_app(f"sqlite:///{tmp_path / 'new.db'}")
    app.sync.start()
    with app.sync.transaction() as tx:
        app.sync.outbox.append(tx, Placed(n=1))
    assert app.sync.drain() == 1


async def test_inside_an_event_loop_it_says_what_to_call(sqlite_url: str) -> None:
    app = sync_app(sqlite_url)
    with pytest.raises(ConfigurationError, match="inside an event loop"):
        app.sync.drain()
    async with app:
        with pytest.raises(ConfigurationError, match="runs in an event loop already"):
            await asyncio.to_thread(app.sync.drain)


async def test_appends_from_threads_wake_a_worker_of_the_same_process(database_url: str) -> None:
    app = routed_app(database_url, relay={"poll_min_ms": 20_000, "poll_max_ms": 20_000})
    async with app.worker():

        def append(n: int) -> None:
            assert threading.current_thread() is not threading.main_thread()
            with app.sync.transaction() as tx:
                app.sync.outbox.append(tx, Noted(key="a", n=n))

        for n in range(3):
            await asyncio.to_thread(append, n)
            await arrived(app, n)
    await app.close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "psycopg2"])
def test_a_url_may_name_a_driver(any_postgres_url: str, driver: str) -> None:
    rest = any_postgres_url.partition("://")[2]
    for scheme in (f"postgresql+{driver}", "postgres", f"postgres+{driver}"):
        app = sync_app(f"{scheme}://{rest}")
        with app.sync.transaction() as tx:
            app.sync.outbox.append(tx, Placed(n=1))
        assert app.sync.drain() == 1


@pytest.mark.parametrize("driver", ["", "+pysqlite", "+aiosqlite"])
def test_a_url_of_a_file_may_name_a_driver(sqlite_url: str, driver: str) -> None:
    app = sync_app(sqlite_url.replace("sqlite", f"sqlite{driver}", 1))
    finish(app.start())
    finish(app.close())
    with app.sync.transaction() as tx:
        app.sync.outbox.append(tx, Placed(n=1))
    assert app.sync.drain() == 1
