"""The data map on sessions of all kinds: what is pending or loaded, rollbacks, and two at a time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from postlude import ConfigurationError, DatabaseBusy, NotInTransaction
from postlude.core.at_once import at_once
from tests.shop_data import MARK, USERS, Invoice, Item, Model, Order, Place, Visit, dumped, engine_on, fill, shop_map


async def test_what_was_added_and_not_flushed_is_erased_too(sessions: Any, url: str) -> None:
    async def work(session: Any) -> int:
        session.add(Visit(id=20, who=2, ip=f"{MARK}2"))
        done = await shop_map().erase(session, "2")
        return done.tables["visits"]["deleted"]

    assert await sessions.play(work) == 2
    assert {row[1] for row in dumped(url)["visits"]} == {1, 3}


def test_loaded_objects_do_not_keep_what_is_gone(url: str) -> None:
    engine = engine_on(url)
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, 21)
        assert order.ship_to == f"{MARK}2"
        at_once(shop_map().erase(session, "2"))
        assert order.ship_to == "erased"
    engine.dispose()


def test_a_session_that_commits_by_itself_is_refused(url: str) -> None:
    engine = engine_on(url)
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session, pytest.raises(NotInTransaction):
        at_once(shop_map().erase(session, "2"))
    engine.dispose()


def test_a_handle_of_another_library_is_refused(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "x.db")) as connection,
        pytest.raises(ConfigurationError, match="AsyncSession"),
    ):
        at_once(shop_map().erase(connection, "2"))


@pytest.mark.parametrize("kind", ["Connection", "scoped_session"])
def test_connections_and_scoped_sessions_do_as_well(url: str, kind: str) -> None:
    engine = engine_on(url)
    handle: Any = engine.connect() if kind == "Connection" else scoped_session(sessionmaker(engine))
    assert at_once(shop_map().erase(handle, "2")).found
    handle.commit()
    handle.close()
    engine.dispose()
    assert {row[0] for row in dumped(url)["users"]} == {1, 3}


def test_on_sqlite_the_second_of_two_erasures_waits_or_is_told_that_it_is_busy(sqlite_database: Any) -> None:
    url = sqlite_database.fresh(schema=False)
    engine = engine_on(url)
    Model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        fill(session, *USERS)
    engine.dispose()
    hasty = engine_on(f"{url}?timeout=0")
    with Session(engine) as first, Session(hasty) as second:
        at_once(shop_map().erase(first, "2"))
        with pytest.raises(DatabaseBusy):
            at_once(shop_map().erase(second, "2"))
        second.rollback()
        first.commit()
        again = at_once(shop_map().erase(second, "2"))
    engine.dispose()
    hasty.dispose()
    assert not again.found
    assert again.total() == 0


def test_a_rollback_takes_everything_back(url: str) -> None:
    before = dumped(url)
    engine = engine_on(url)
    with Session(engine) as session:
        at_once(shop_map().erase(session, "2"))
        session.rollback()
    engine.dispose()
    assert dumped(url) == before


async def test_two_erasures_of_one_subject_go_one_after_the_other(any_postgres_database: Any) -> None:
    url = any_postgres_database.fresh(schema=False)
    engine = engine_on(url)
    Model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        fill(session, *USERS)
    data = shop_map()
    first, second = Session(engine), Session(engine)
    watch = Session(engine)
    one = at_once(data.erase(first, "2"))
    waited = threading.Event()
    results: list[Any] = []

    def erase_again() -> None:
        with second.begin():
            results.append(at_once(data.erase(second, "2")))
        waited.set()

    thread = threading.Thread(target=erase_again)
    thread.start()
    await _until_somebody_waits(watch)
    assert not waited.is_set()
    first.commit()
    await asyncio.to_thread(thread.join)
    for session in (first, second, watch):
        session.close()
    engine.dispose()
    assert one.tables["users"]["deleted"] == 1
    assert not results[0].found
    assert results[0].total() == 0


async def _until_somebody_waits(session: Session) -> None:
    from sqlalchemy import text

    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while not session.scalar(waiting):
        session.rollback()
        await asyncio.sleep(0.01)
    session.rollback()


def test_many_rows_take_one_statement_each_table(url: str) -> None:
    from sqlalchemy import event

    engine = engine_on(url)
    statements: list[str] = []
    with Session(engine) as session, session.begin():
        session.execute(insert(Visit), [{"id": 100 + n, "who": 2, "ip": "::1"} for n in range(5000)])
        session.execute(update(Item).values(engraving=MARK))
        event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
        done = at_once(shop_map().erase(session, "2"))
    engine.dispose()
    assert done.tables["visits"]["deleted"] == 5001
    # The lock, and the steps of the plan.
    assert len(statements) == 1 + len(shop_map().plan().steps)


def test_places_and_invoices_are_not_loaded(url: str) -> None:
    engine = engine_on(url)
    with Session(engine) as session, session.begin():
        at_once(shop_map().erase(session, "2"))
        assert not [one for one in session.identity_map.values() if isinstance(one, Place | Invoice)]
    engine.dispose()
