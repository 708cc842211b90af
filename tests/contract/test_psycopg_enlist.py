"""The adapters of psycopg's connections know what only psycopg can do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from postlude import Event, Postlude, Settings, event
from postlude.errors import ConnectionClosed, NotInTransaction
from tests.conftest import ON_POSTGRES


@event(type="test.placed", topic="placed")
class Placed(Event):
    n: int


@pytest.fixture(params=ON_POSTGRES[:1])
def url(request: pytest.FixtureRequest, swept_url: Callable[[str], str]) -> str:
    return swept_url(request.param)


@pytest.fixture
async def app(url: str) -> AsyncIterator[Postlude]:
    app = Postlude(url, broker="memory://", settings=Settings.load(environ={}, pool={"min": 1}))
    app.route(Placed)
    await app.start()
    yield app
    await app.close()


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection[Any]]:
    connection = psycopg.connect(url)
    yield connection
    connection.close()


async def _published(app: Postlude) -> int:
    await app.drain()
    return len(app.broker().messages("placed"))


async def test_a_connection_that_begins_by_itself_may_append(app: Postlude, connection: Any) -> None:
    await app.outbox.append(connection, Placed(n=1))
    assert await _published(app) == 0
    connection.commit()
    assert await _published(app) == 1


async def test_autocommit_needs_a_block(app: Postlude, connection: Any) -> None:
    connection.autocommit = True
    with pytest.raises(NotInTransaction, match="autocommit"):
        await app.outbox.append(connection, Placed(n=1))
    with connection.transaction():
        await app.outbox.append(connection, Placed(n=2))
    connection.execute("BEGIN")
    await app.outbox.append(connection, Placed(n=3))
    connection.execute("COMMIT")
    assert await _published(app) == 2


async def test_in_a_pipeline(app: Postlude, connection: Any, url: str) -> None:
    connection.autocommit = True
    with connection.pipeline(), connection.transaction():
        connection.execute("SELECT 1")
        await app.outbox.append(connection, Placed(n=1))
        await app.outbox.append_many(connection, [Placed(n=2), Placed(n=3)])
        connection.execute("SELECT 2")
    async with await psycopg.AsyncConnection.connect(url) as other, other.pipeline():
        await app.outbox.append(other, Placed(n=4))
    assert await _published(app) == 4


async def test_statements_that_psycopg_has_prepared(app: Postlude, connection: Any) -> None:
    connection.prepare_threshold = 1
    for n in range(5):
        await app.outbox.append(connection, Placed(n=n))
        await app.outbox.append_many(connection, [Placed(n=n), Placed(n=n)])
    assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0] >= 2
    connection.commit()
    assert await _published(app) == 15


@pytest.mark.parametrize("cursor", [psycopg.ClientCursor, psycopg.RawCursor])
async def test_the_callers_cursors_and_rows_do_not_matter(app: Postlude, connection: Any, cursor: Any) -> None:
    connection.cursor_factory = cursor
    connection.row_factory = dict_row
    one = Placed(n=1)
    made = await app.outbox.append(connection, one)
    assert await app.outbox.append(connection, one, id=made, correlation_id=str(made)) == made
    connection.commit()
    assert await _published(app) == 1


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
async def test_any_isolation_level_may_append(app: Postlude, connection: Any, level: Any) -> None:
    connection.isolation_level = level
    await app.outbox.append(connection, Placed(n=1))
    connection.commit()
    assert await _published(app) == 1


async def test_a_connection_that_the_server_has_ended_is_told(app: Postlude, connection: Any, url: str) -> None:
    connection.execute("SELECT 1")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(ConnectionClosed):
        await app.outbox.append(connection, Placed(n=1))


@pytest.mark.parametrize("module", ["psycopg", "sqlalchemy", "django"])
def test_adapters_do_not_import_what_they_adopt(module: str) -> None:
    check = f"import sys, postlude, postlude.enlist.{module}; sys.exit({module!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
