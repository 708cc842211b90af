"""The adapters of SQLAlchemy's handles know what only SQLAlchemy can do."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from postlude import Event, Postlude, Settings, event
from postlude.enlist.sqlalchemy import not_ours
from postlude.errors import ConfigurationError, ConnectionClosed, NotInTransaction
from tests.callers import engine_url
from tests.conftest import ON_POSTGRES, ON_SQLITE
from tests.engine import query


@event(type="test.placed", topic="placed")
class Placed(Event):
    n: int


class Model(DeclarativeBase):
    pass


class Order(Model):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@pytest.fixture(params=[*ON_POSTGRES[:1], *ON_SQLITE])
def place(request: pytest.FixtureRequest, swept_url: Callable[[str], str]) -> tuple[str, str]:
    return swept_url(request.param), "pysqlite" if request.param == "sqlite" else "psycopg"


@pytest.fixture
def engine(place: tuple[str, str]) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(engine_url(*place))
    Model.metadata.create_all(engine)
    yield engine
    Model.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
async def app(place: tuple[str, str]) -> AsyncIterator[Postlude]:
    app = Postlude(place[0], broker="memory://", settings=Settings.load(environ={}, pool={"min": 1}))
    app.route(Placed)
    await app.start()
    yield app
    await app.close()


async def _published(app: Postlude) -> int:
    await app.drain()
    return len(app.broker().messages("placed"))


async def test_objects_and_events_commit_together(app: Postlude, engine: Any, place: tuple[str, str]) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        await app.outbox.append(session, Placed(n=1))
        session.commit()
        session.add(Order(id=2))
        await app.outbox.append(session, Placed(n=2))
        session.rollback()
    assert await _published(app) == 1
    assert await query(place[0], "SELECT id FROM orders") == [(1,)]


async def test_a_flush_that_fails_in_a_savepoint_leaves_the_rest(app: Postlude, engine: Any) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        await app.outbox.append(session, Placed(n=1))
        with pytest.raises(sqlalchemy.exc.IntegrityError), session.begin_nested():
            await app.outbox.append(session, Placed(n=2))
            session.execute(sqlalchemy.insert(Order).values(id=1))
        await app.outbox.append(session, Placed(n=3))
        session.commit()
    assert await _published(app) == 2


async def test_a_session_whose_flush_has_failed_is_told(app: Postlude, engine: Any) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        session.flush()
        session.expunge_all()
        session.add(Order(id=1))
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            session.flush()
        with pytest.raises(NotInTransaction, match="has failed"):
            await app.outbox.append(session, Placed(n=1))
        session.rollback()
        await app.outbox.append(session, Placed(n=2))
        session.commit()
    assert await _published(app) == 1


async def test_a_session_that_does_not_begin_by_itself(app: Postlude, engine: Any) -> None:
    with Session(engine, autobegin=False) as session:
        with pytest.raises(NotInTransaction, match="autobegin=False"):
            await app.outbox.append(session, Placed(n=1))
        with session.begin():
            await app.outbox.append(session, Placed(n=2))
    assert await _published(app) == 1


async def test_autocommit_wherever_it_comes_from(app: Postlude, engine: Any, place: tuple[str, str]) -> None:
    with Session(engine) as session:
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(NotInTransaction, match="AUTOCOMMIT"):
            await app.outbox.append(session, Placed(n=1))
    options = {"isolation_level": None} if place[1] == "pysqlite" else {"autocommit": True}
    by_driver = sqlalchemy.create_engine(engine_url(*place), connect_args=options)
    with by_driver.connect() as connection, pytest.raises(NotInTransaction, match="AUTOCOMMIT"):
        await app.outbox.append(connection, Placed(n=1))
    by_driver.dispose()
    assert await _published(app) == 0


async def test_a_session_of_several_engines(app: Postlude, engine: Any) -> None:
    with Session(binds={Order: engine}) as session:
        with pytest.raises(ConfigurationError, match="which database is meant"):
            await app.outbox.append(session, Placed(n=1))
        await app.outbox.append(session.connection(bind_arguments={"mapper": Order}), Placed(n=2))
        session.commit()
    elsewhere = sqlalchemy.create_engine("sqlite://")
    with Session(engine, binds={Order: elsewhere}) as session:
        await app.outbox.append(session, Placed(n=3))
        session.commit()
    elsewhere.dispose()
    assert await _published(app) == 2


async def test_a_session_on_a_connection_of_the_callers(app: Postlude, engine: Any) -> None:
    """As tests are written: everything of the session is rolled back with its connection."""
    if engine.dialect.name == "sqlite":
        # What SQLAlchemy's own pages advise: else sqlite3 begins only after the savepoint, whose end then commits.
        sqlalchemy.event.listen(engine, "connect", lambda driver, _: setattr(driver, "isolation_level", None))
        sqlalchemy.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        engine.dispose()
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            session.add(Order(id=1))
            await app.outbox.append(session, Placed(n=1))
            session.commit()
        outer.rollback()
    assert await _published(app) == 0


async def test_a_connection_that_is_lost_is_told(app: Postlude, engine: Any, place: tuple[str, str]) -> None:
    if place[1] == "pysqlite":
        return  # nobody can take a file away
    with engine.connect() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        with psycopg.connect(place[0], autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(ConnectionClosed):
            await app.outbox.append(connection, Placed(n=1))
        with pytest.raises(ConnectionClosed):
            await app.outbox.append(connection, Placed(n=1))


async def test_an_async_connection_that_nobody_awaited(app: Postlude, place: tuple[str, str]) -> None:
    driver = "aiosqlite" if place[1] == "pysqlite" else "asyncpg"
    engine = create_async_engine(engine_url(place[0], driver))
    with pytest.raises(ConnectionClosed):
        await app.outbox.append(engine.connect(), Placed(n=1))
    await engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_any_isolation_level_may_append(app: Postlude, engine: Any, level: str) -> None:
    if engine.dialect.name == "sqlite" and level == "REPEATABLE READ":
        return  # it has only the other
    with engine.connect().execution_options(isolation_level=level) as connection:
        await app.outbox.append(connection, Placed(n=1))
        connection.commit()
    assert await _published(app) == 1


async def test_alembic_leaves_our_tables_alone(app: Postlude, engine: Any) -> None:
    found = sqlalchemy.inspect(engine)
    theirs = [name for name in found.get_table_names() if not_ours(None, name, "table", True, None)]
    assert theirs == ["orders"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sqlalchemy.exc.SAWarning)  # of indexes on expressions
        indexes = [index["name"] for index in found.get_indexes("postlude_delivery")]
    assert indexes
    assert not any(not_ours(None, name, "index", True, None) for name in indexes)
    assert not_ours(None, None, "schema", True, None)
    assert not_ours(None, "postlude_id", "column", True, None), "a column of theirs may be called anything"
