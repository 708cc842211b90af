"""The adapter of Django's connections knows what only Django can do. Everything runs without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction

from postlude import Event, Postlude, Settings, event
from postlude.enlist.django import atomic, database_url
from postlude.errors import ConfigurationError, ConnectionClosed, NotInTransaction
from tests.conftest import ON_POSTGRES, ON_SQLITE
from tests.django_settings import conf, databases


@event(type="test.placed", topic="placed")
class Placed(Event):
    n: int


@pytest.fixture(params=[*ON_POSTGRES[:1], *ON_SQLITE])
def url(request: pytest.FixtureRequest, swept_url: Callable[[str], str]) -> Iterator[str]:
    url = swept_url(request.param)
    with databases(default=url):
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE effect (n int UNIQUE)")
        yield url
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE effect")


@pytest.fixture
def app(url: str) -> Postlude:
    settings = Settings.load(environ={}, pool={"min": 1}, retry={"base_delay_seconds": 0})
    app = Postlude(database_url(), broker="memory://", transactions=atomic(), settings=settings)
    app.route(Placed)
    return app


def write(n: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effect VALUES (%s)", (n,))


def effects() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT n FROM effect ORDER BY n")
        return [row[0] for row in cursor.fetchall()]


def published(app: Postlude) -> int:
    app.sync.drain()
    return len(app.broker().messages("placed"))


def test_rows_and_events_commit_together(app: Postlude) -> None:
    with transaction.atomic():
        write(1)
        app.sync.outbox.append(connection, Placed(n=1))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        write(2)
        app.sync.outbox.append(connections["default"], Placed(n=2))
        raise ZeroDivisionError
    assert effects() == [1]
    assert published(app) == 1


def test_outside_atomic_django_commits_each_statement(app: Postlude) -> None:
    connection.close()
    for _ in range(2):  # before and after the connection is made
        with pytest.raises(NotInTransaction, match=r"transaction\.atomic\(\)"):
            app.sync.outbox.append(connection, Placed(n=1))
        connection.ensure_connection()


def test_with_autocommit_off_the_caller_commits(app: Postlude) -> None:
    transaction.set_autocommit(False)
    try:
        app.sync.outbox.append(connection, Placed(n=1))
        transaction.commit()
        app.sync.outbox.append(connection, Placed(n=2))
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert published(app) == 1


def test_blocks_nest(app: Postlude) -> None:
    with transaction.atomic():
        app.sync.outbox.append(connection, Placed(n=1))
        with pytest.raises(IntegrityError), transaction.atomic():
            app.sync.outbox.append(connection, Placed(n=2))
            write(1)
            write(1)
        with transaction.atomic():
            app.sync.outbox.append(connection, Placed(n=3))
    assert published(app) == 2


def test_a_broken_block_is_told(app: Postlude) -> None:
    with pytest.raises(NotInTransaction, match="has failed"), transaction.atomic():
        transaction.set_rollback(True)
        app.sync.outbox.append(connection, Placed(n=1))
    assert published(app) == 0


def test_a_connection_closed_inside_a_block_is_told(app: Postlude) -> None:
    with transaction.atomic():
        connection.close()
        with pytest.raises(ConnectionClosed):
            app.sync.outbox.append(connection, Placed(n=1))


def test_several_aliases(app: Postlude, url: str, databases_on: Any) -> None:
    """Each app has the database it was made for; the alias says which connection is meant."""
    other_url = databases_on("sqlite" if url.startswith("sqlite") else ON_POSTGRES[0].values[0]).fresh()
    with databases(other=other_url):
        other = Postlude(database_url("other"), broker="memory://", settings=app.settings)
        other.route(Placed)
        with transaction.atomic(), transaction.atomic(using="other"):
            app.sync.outbox.append(connection, Placed(n=1))
            other.sync.outbox.append_many(connections["other"], [Placed(n=2), Placed(n=3)])
        with pytest.raises(NotInTransaction, match=r"using='other'"), transaction.atomic():
            other.sync.outbox.append(connections["other"], Placed(n=4))
        connections["other"].close()
        assert (published(app), published(other)) == (1, 2)


def test_a_handler_that_asks_django_to_roll_back_is_a_dead_letter(app: Postlude) -> None:
    @app.on(Placed, name="rolls_back")
    def rolls_back(placed: Placed) -> None:
        write(placed.n)
        transaction.set_rollback(True)

    with transaction.atomic():
        app.sync.outbox.append(connection, Placed(n=1))
    app.sync.drain()
    assert effects() == []
    assert _statuses() == [("handler:rolls_back", "dead")]


def test_a_handler_cannot_commit(app: Postlude) -> None:
    """Django refuses it by itself, so nothing is committed and the handler is retried."""
    attempts: list[int] = []

    @app.on(Placed, name="commits", retry=None)
    def commits(placed: Placed, ctx: Any) -> None:
        attempts.append(ctx.attempt)
        write(placed.n)
        if ctx.attempt == 1:
            transaction.commit()

    with transaction.atomic():
        app.sync.outbox.append(connection, Placed(n=1))
    app.sync.drain()
    assert attempts == [1, 2]
    assert effects() == [1]


def test_handlers_leave_no_connection_behind(app: Postlude) -> None:
    used: list[Any] = []

    @app.on(Placed, name="uses")
    def uses(placed: Placed, ctx: Any) -> None:
        assert connections["default"] is ctx.tx, "what the handler's models use is what it was lent"
        used.append(ctx.tx)

    with transaction.atomic():
        app.sync.outbox.append_many(connection, [Placed(n=1), Placed(n=2)])
    app.sync.drain()
    assert len(used) == 2
    assert all(one.connection is None for one in used), "CONN_MAX_AGE is 0"
    assert connections["default"] not in used


def test_inside_a_test_case_of_django_nothing_is_committed(app: Postlude) -> None:
    """TestCase wraps each test in atomic(): a worker cannot see what was appended. TransactionTestCase does not."""
    with transaction.atomic():  # what TestCase does
        with transaction.atomic():
            app.sync.outbox.append(connection, Placed(n=1))
        if connection.vendor == "postgresql":  # on SQLite the open block holds the only writer
            assert published(app) == 0
        transaction.set_rollback(True)
    assert published(app) == 0


def _statuses() -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT destination, status FROM postlude_delivery WHERE destination LIKE 'handler%%'")
        return [tuple(row) for row in cursor.fetchall()]


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"NAME": "shop", "USER": "app", "PASSWORD": "p@ss/w", "HOST": "db", "PORT": "5433"},
         "postgresql://app:p%40ss%2Fw@db:5433/shop"),
        ({"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True}}, "postgresql://db/shop?sslmode=require"),
        ({"NAME": "shop", "HOST": "/run/pg", "PORT": 5433}, "postgresql:///shop?host=%2Frun%2Fpg&port=5433"),
        ({"NAME": "shop", "HOST": "::1"}, "postgresql://[::1]/shop"),
        ({"NAME": "shop"}, "postgresql:///shop"),
    ],
)  # fmt: skip
def test_the_url_of_djangos_settings(given: dict[str, Any], url: str) -> None:
    with databases(made="sqlite:///unused.db"):
        connections.settings["made"] |= given | {"ENGINE": "django.db.backends.postgresql"}
        assert database_url("made") == url


def test_the_url_of_a_file() -> None:
    with databases(made="sqlite:////srv/my shop.db"):
        assert database_url("made") == "sqlite:////srv/my%20shop.db"


@pytest.mark.parametrize("name", [":memory:", "file:memorydb_default?mode=memory&cache=shared"])
def test_a_database_in_memory_cannot_be_reached(name: str) -> None:
    with databases(made="sqlite:///unused.db"):
        connections.settings["made"] |= conf("sqlite:///") | {"NAME": name}
        with pytest.raises(ConfigurationError, match="lives in memory"):
            database_url("made")
