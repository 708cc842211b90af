"""One app on PostgreSQL and SQLite together: each with its own lanes, relay and operators."""

from __future__ import annotations

from typing import Any

import pytest

from postlude import ConfigurationError, Context, Event, Postlude, event
from tests.engine import Noted, note, published, query, until

WHO = {"actor": "ann", "reason": "tests"}


@event(type="several.followed")
class Followed(Event):
    n: int


@pytest.fixture
async def app(any_postgres_url: str, sqlite_url: str) -> Any:
    app = Postlude(any_postgres_url, databases={"edge": sqlite_url}, broker="memory://")
    app.route(Noted)
    app.route(Followed)
    await app.db.upgrade()
    async with app:
        yield app


async def append_at_the_edge(app: Postlude, n: int) -> None:
    edge = app.databases["edge"]
    async with edge.transaction() as tx:
        await edge.outbox.append(tx, Noted(key="edge", n=n))


async def test_what_is_appended_in_either_is_delivered(app: Postlude) -> None:
    await note(app, "main", 1)
    await append_at_the_edge(app, 2)
    assert await app.drain() == 2
    assert sorted(published(app)) == [1, 2]


async def test_a_worker_serves_both_until_it_ends(app: Postlude) -> None:
    async with app.worker():
        await note(app, "main", 1)
        await append_at_the_edge(app, 2)
        await until(lambda: sorted(published(app)) == [1, 2])
        for engine in app.databases.values():
            assert len(await engine.store.ownership.live_workers()) == 1
    for engine in app.databases.values():
        assert await engine.store.ownership.live_workers() == []


async def test_what_a_handler_appends_stays_in_the_database_of_its_event(
    app: Postlude, any_postgres_url: str, sqlite_url: str
) -> None:
    @app.on(Noted, name="follow")
    async def follow(noted: Noted, ctx: Context) -> None:
        await ctx.append(Followed(n=noted.n))

    await note(app, "main", 1)
    await append_at_the_edge(app, 2)
    await app.drain()
    followed = "SELECT count(*) FROM postlude_event WHERE type = 'several.followed'"
    assert await query(any_postgres_url, followed) == [(1,)]
    assert await query(sqlite_url, followed) == [(1,)]


async def test_each_is_operated_by_itself(app: Postlude) -> None:
    await app.run_once()  # makes the destinations known
    await app.databases["edge"].actions.pause("default", **WHO)
    await note(app, "main", 1)
    await append_at_the_edge(app, 2)
    await app.drain()
    assert published(app) == [1]
    assert (await app.databases["edge"].insight.counts())["pending"] == 1
    assert (await app.insight.counts())["pending"] == 0
    await app.databases["edge"].actions.resume("default", **WHO)
    await app.drain()
    assert published(app) == [1, 2]


async def test_a_handle_of_the_other_database_is_refused(app: Postlude) -> None:
    async with app.databases["edge"].transaction() as tx:
        with pytest.raises(ConfigurationError, match="a sqlite handle was given to an app on postgres"):
            await app.outbox.append(tx, Noted(key="a", n=1))


def test_without_a_default_one_must_be_named(sqlite_url: str) -> None:
    app = Postlude(databases={"edge": sqlite_url, "hub": "sqlite:///hub.db"})
    with pytest.raises(ConfigurationError, match="no default database, only edge, hub") as caught:
        _ = app.outbox
    assert "app.databases['NAME']" in str(caught.value.hint)


def test_transactions_for_a_database_that_is_not_there_are_refused(sqlite_url: str) -> None:
    with pytest.raises(ConfigurationError, match="transactions name a database that is not there: hub"):
        Postlude(sqlite_url, databases={"edge": sqlite_url}, transactions={"hub": lambda: None})
