"""The data map on real databases: every strategy, sync and async sessions, and nothing but the subject's rows."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    Uuid,
    insert,
    select,
    update,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from postlude import (
    Anonymise,
    ConfigurationError,
    DatabaseBusy,
    DataMap,
    Delete,
    ErasureRefused,
    NotInTransaction,
    Postlude,
)
from postlude.core.at_once import at_once
from postlude.core.calls import Correction
from postlude.ports.subject_data import SubjectData
from tests.databases import Databases
from tests.shop_data import (
    KINDS_OF_DATABASE,
    MARK,
    Async,
    Invoice,
    Item,
    Model,
    Order,
    Place,
    Sync,
    User,
    Visit,
    dump,
    engine_on,
    fill,
    shop_map,
)

USERS = (1, 2, 3)


@pytest.fixture(params=KINDS_OF_DATABASE)
def empty_url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh(schema=False)


@pytest.fixture
def url(empty_url: str) -> str:
    engine = engine_on(empty_url)
    Model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        fill(session, *USERS)
    engine.dispose()
    return empty_url


@pytest.fixture(params=[Sync, Async], ids=["sync", "async"])
def sessions(request: pytest.FixtureRequest, url: str) -> Any:
    return request.param(url)


def _dumped(url: str) -> dict[str, list[tuple[Any, ...]]]:
    engine = engine_on(url)
    with Session(engine) as session:
        found = dump(session)
    engine.dispose()
    return found


def test_a_data_map_is_subject_data() -> None:
    data: SubjectData = shop_map()
    assert data.plan().anchor == ("users", "id")


async def test_an_erasure_follows_every_strategy(sessions: Any, url: str) -> None:
    data = shop_map()
    done = await sessions.play(lambda session: data.erase(session, "2"))

    assert done.found
    assert done.tables == {
        "orders": {"anonymised": 2, "detached": 2},
        "items": {"anonymised": 2},
        "invoices": {"retained": 2},
        "places": {"deleted": 1},
        "logins": {"deleted": 1},
        "visits": {"deleted": 1},
        "users": {"deleted": 1, "detached": 1},
    }
    assert done.retained == ("invoices.name (tax law, ten years, until 2036-01-01)",)
    left = _dumped(url)
    assert [(row[0], row[1], row[3], row[4]) for row in left["orders"] if row[0] in (21, 22)] == [
        (21, None, "erased", None),
        (22, None, "erased", None),
    ]
    assert {row[0] for row in left["users"]} == {1, 3}
    assert [name for name, rows in left.items() if f"{MARK}2" in str(rows)] == ["invoices"]


@pytest.mark.parametrize("kind", [Sync, Async], ids=["sync", "async"])
@pytest.mark.parametrize("name", KINDS_OF_DATABASE)
async def test_an_app_uses_the_map(databases_on: Callable[[str], Databases], name: str, kind: Any) -> None:
    url = databases_on(name).fresh()
    engine = engine_on(url)
    Model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        fill(session, *USERS)
    engine.dispose()
    app = Postlude(url)
    app.erasure.use(shop_map())
    async with app:
        done = await kind(url).play(lambda session: app.erasure.erase_subject(session, 2))
        corrections = [Correction("email", "new")]
        changed = await kind(url).play(lambda session: app.erasure.rectify_subject(session, "3", corrections))
        with pytest.raises(ErasureRefused, match="a category that no column"):
            await kind(url).play(
                lambda session: app.erasure.rectify_subject(session, "3", [Correction("shoe size", 38)])
            )
    assert done.tables["users"] == {"deleted": 1, "detached": 1}
    assert done.retained == ("invoices.name (tax law, ten years, until 2036-01-01)",)
    assert changed.tables == {"users": {"corrected": 1}}
    assert [row[:2] for row in _dumped(url)["users"]] == [(1, f"{MARK}1"), (3, "new")]


@pytest.mark.parametrize("name", KINDS_OF_DATABASE)
async def test_an_id_that_does_not_fit_leaves_no_trace_even_if_the_caller_commits(
    databases_on: Callable[[str], Databases], name: str
) -> None:
    url = databases_on(name).fresh()
    app = Postlude(url)
    app.erasure.use(shop_map())

    async def refused(session: Any) -> None:
        for asked in (
            app.erasure.erase_subject(session, "nobody"),
            app.erasure.rectify_subject(session, "nobody", [Correction("email", "new")]),
        ):
            with pytest.raises(ErasureRefused, match="does not fit"):
                await asked

    async with app:
        await Async(url).play(refused)
        assert await app.insight.audits() == []
        assert (await app.erasure.show("nobody")).requests == []


def test_an_app_refuses_a_map_that_cannot_work(tmp_path: Path) -> None:
    app = Postlude(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(ConfigurationError, match="orders: several paths lead"):
        app.erasure.use(DataMap(User.id).column(Order.phone, "phone"))
    assert app.erasure.data is None


async def test_rows_of_others_stay_as_they_are(sessions: Any, url: str) -> None:
    before = _dumped(url)
    await sessions.play(lambda session: shop_map().erase(session, "2"))
    after = _dumped(url)
    for name, rows in before.items():
        others = [row for row in rows if row in after[name]]
        assert len(others) == {"logins": 2, "orders": 4, "items": 4, "invoices": 6}.get(name, 2)


async def test_whom_many_rows_refer_to_is_let_go(sessions: Any, url: str) -> None:
    """The first user has referred everybody and approved every order."""
    done = await sessions.play(lambda session: shop_map().erase(session, "1"))
    # Six orders are let go by their approver, two of them by their owner too; users by whom they were referred.
    assert done.tables["orders"] == {"anonymised": 2, "detached": 8}
    left = _dumped(url)
    assert {row[2] for row in left["users"]} == {None}
    assert {(row[1], row[2]) for row in left["orders"]} == {(None, None), (2, None), (3, None)}


async def test_who_is_not_there_has_zero_counts(sessions: Any, url: str) -> None:
    before = _dumped(url)
    done = await sessions.play(lambda session: shop_map().erase(session, "99"))
    assert not done.found
    assert done.total() == 0
    assert not done.retained
    assert _dumped(url) == before


async def test_a_second_erasure_finds_nothing_to_delete(sessions: Any, url: str) -> None:
    await sessions.play(lambda session: shop_map().erase(session, "2"))
    before = _dumped(url)
    done = await sessions.play(lambda session: shop_map().erase(session, "2"))
    assert done.total() == 0
    assert _dumped(url) == before


async def test_counting_verifies(sessions: Any) -> None:
    data = shop_map()
    before = await sessions.play(lambda session: data.count(session, "2"))
    await sessions.play(lambda session: data.erase(session, "2"))
    after = await sessions.play(lambda session: data.count(session, "2"))
    assert before == {"places": 1, "logins": 1, "visits": 1, "users": 1}
    assert after == dict.fromkeys(before, 0)


async def test_corrections_go_by_category_to_retained_columns_too(sessions: Any, url: str) -> None:
    corrections = [Correction("name", "Augusta"), Correction("email", "new")]
    changed = await sessions.play(lambda session: shop_map().rectify(session, "2", corrections))
    assert {table: kinds["corrected"] for table, kinds in changed.tables.items()} == {
        "users": 1,
        "orders": 2,
        "items": 2,
        "invoices": 2,
    }
    left = _dumped(url)
    assert [row[2] for row in left["invoices"]] == [f"{MARK}1"] * 2 + ["Augusta"] * 2 + [f"{MARK}3"] * 2
    assert [row[1] for row in left["users"]] == [f"{MARK}1", "new", f"{MARK}3"]


@pytest.mark.parametrize(
    "corrections",
    [
        [Correction("email", "new"), Correction(MARK, "email")],
        [Correction("email", "new"), Correction("email", "newer")],
        [Correction("phone", "1"), Correction("email", None)],
    ],
    ids=["unknown", "twice", "null"],
)
async def test_corrections_that_do_not_fit_change_nothing(
    sessions: Any, url: str, corrections: list[Correction]
) -> None:
    before = _dumped(url)

    async def work(session: Any) -> None:
        with pytest.raises(ErasureRefused) as refused:
            await shop_map().rectify(session, "2", corrections)
        assert MARK not in str(refused.value)

    await sessions.play(work)
    assert _dumped(url) == before


async def test_subjects_come_page_by_page(sessions: Any) -> None:
    data = shop_map()
    first = await sessions.play(lambda session: data.subject_ids(session, limit=2))
    second = await sessions.play(lambda session: data.subject_ids(session, after=first[-1], limit=2))
    assert (first, second) == (["1", "2"], ["3"])


@pytest.mark.parametrize(
    "wrong",
    ["Ada", "", "1.0", "1_0", " 2", "02", "+2", "-0", "9" * 19, "2; DROP TABLE users", "\N{FULLWIDTH DIGIT TWO}"],
)
async def test_an_id_that_does_not_fit_is_refused_without_naming_it(url: str, wrong: str) -> None:
    with pytest.raises(ErasureRefused, match=r"users\.id, which holds a whole number") as refused:
        await Sync(url).play(lambda session: shop_map().erase(session, wrong))
    assert not wrong.strip() or wrong not in str(refused.value)


async def test_an_id_too_large_for_the_column_is_nobodys_or_refused_without_naming_it(sessions: Any, url: str) -> None:
    """PostgreSQL's drivers refuse it and would name it; integers of SQLite are long enough."""
    too_large = str(10**10 - 7)
    before = _dumped(url)
    if url.startswith("sqlite"):
        assert not (await sessions.play(lambda session: shop_map().erase(session, too_large))).found
    else:
        with pytest.raises(ErasureRefused, match="locking the subject") as refused:
            await sessions.play(lambda session: shop_map().erase(session, too_large))
        assert too_large not in "".join(traceback.format_exception(refused.value))
    assert _dumped(url) == before


def test_an_id_has_one_way_to_be_written(sqlite_database: Any) -> None:
    """Else one subject would have two pseudonyms."""
    owner = Table("owner", metadata := MetaData(), Column("id", Uuid, primary_key=True), Column("email", String))
    data = DataMap(owner.c.id).table(owner, Delete())
    engine = engine_on(sqlite_database.fresh(schema=False))
    metadata.create_all(engine)
    one = uuid4()
    with Session(engine) as session, session.begin():
        session.execute(owner.insert().values(id=one))
        for written in (f"{{{one}}}", one.hex, f"urn:uuid:{one}", "7"):
            with pytest.raises(ErasureRefused, match="a UUID"):
                at_once(data.erase(session, written))
        assert at_once(data.erase(session, str(one))).found
    engine.dispose()


async def test_what_the_database_refuses_is_told_without_values(sessions: Any, url: str) -> None:
    """Both orders of the subject get the same code, and its error would name it."""
    data = DataMap(User.id)
    data.table(Order, path=Order.user_id).column(Order.code, "code", Anonymise(lambda: f"{MARK}code"))
    before = _dumped(url)
    with pytest.raises(ErasureRefused, match="anonymise code of orders") as refused:
        await sessions.play(lambda session: data.erase(session, "2"))
    told = "".join(traceback.format_exception(refused.value))
    assert MARK not in told
    assert _dumped(url) == before


async def test_what_was_added_and_not_flushed_is_erased_too(sessions: Any, url: str) -> None:
    async def work(session: Any) -> int:
        session.add(Visit(id=20, who=2, ip=f"{MARK}2"))
        done = await shop_map().erase(session, "2")
        return done.tables["visits"]["deleted"]

    assert await sessions.play(work) == 2
    assert {row[1] for row in _dumped(url)["visits"]} == {1, 3}


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
    assert {row[0] for row in _dumped(url)["users"]} == {1, 3}


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


def test_comments_of_others_go_with_a_post_and_are_not_rectified(empty_url: str) -> None:
    """What the database would delete along is deleted; it is not the subject's own for all that."""
    metadata = MetaData()
    people = Table("people", metadata, Column("id", String, primary_key=True))
    posts = Table("posts", metadata, Column("id", Integer, primary_key=True), Column("author", ForeignKey("people.id")))
    comments = Table(
        "comments",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("author", ForeignKey("people.id")),
        Column("post", ForeignKey("posts.id", ondelete="CASCADE"), nullable=False),
        Column("signed", String),
    )
    data = DataMap(people.c.id).table(people, Delete()).table(posts, Delete())
    data.table(comments, Delete(), path=comments.c.author).column(comments.c.signed, "name")
    engine = engine_on(empty_url)
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.execute(people.insert(), [{"id": "ada"}, {"id": "bob"}])
        session.execute(posts.insert(), [{"id": 1, "author": "ada"}, {"id": 2, "author": "bob"}])
        rows = [(1, "ada", 1), (2, "bob", 1), (3, "ada", 2), (4, "bob", 2)]
        session.execute(comments.insert(), [dict(zip(("id", "author", "post"), row, strict=True)) for row in rows])
        changed = at_once(data.rectify(session, "ada", [Correction("name", "A.")]))
        done = at_once(data.erase(session, "ada"))
        left = session.execute(select(comments.c.id)).scalars().all()
    engine.dispose()
    assert changed.tables == {"comments": {"corrected": 2}}
    assert done.tables["comments"]["deleted"] == 3
    assert left == [4]


def test_a_rollback_takes_everything_back(url: str) -> None:
    before = _dumped(url)
    engine = engine_on(url)
    with Session(engine) as session:
        at_once(shop_map().erase(session, "2"))
        session.rollback()
    engine.dispose()
    assert _dumped(url) == before


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


def test_a_reference_of_several_columns(empty_url: str) -> None:
    metadata = MetaData()
    people = Table(
        "people",
        metadata,
        Column("tenant", Integer, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("id", Uuid, unique=True),
    )
    letters = Table(
        "letters",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("tenant", Integer, nullable=False),
        Column("writer", Integer),
        Column("content", String),
        ForeignKeyConstraint(["tenant", "writer"], ["people.tenant", "people.number"]),
    )
    data = DataMap(people.c.id).table(people, Delete()).column(letters.c.content, "letter")
    ids = [UUID(int=1), UUID(int=2)]
    engine = engine_on(empty_url)
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.execute(people.insert(), [{"tenant": 1, "number": n, "id": one} for n, one in enumerate(ids)])
        session.execute(
            letters.insert(), [{"id": n, "tenant": 1, "writer": n % 2, "content": f"{MARK}{n}"} for n in range(4)]
        )
        done = at_once(data.erase(session, str(ids[1])))
        left = [tuple(row) for row in session.execute(select(letters).order_by(letters.c.id))]
    engine.dispose()
    assert done.tables == {"people": {"deleted": 1}, "letters": {"anonymised": 2, "detached": 2}}
    assert left == [(0, 1, 0, f"{MARK}0"), (1, 1, None, None), (2, 1, 0, f"{MARK}2"), (3, 1, None, None)]


def test_columns_go_by_their_names_whatever_their_keys_are(empty_url: str) -> None:
    metadata = MetaData()
    people = Table(
        "people",
        metadata,
        Column("person id", Integer, primary_key=True, key="id"),
        Column("e-mail", String, key="mail"),
        Column("name", String, key="e-mail"),
    )
    letters = Table(
        "letters",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("written by", Integer, ForeignKey(people.c.id), key="writer"),
        Column("the text", String, key="content"),
    )
    kept = DataMap(people.c.id).column(people.c.mail, "email", Anonymise("erased"))
    data = (
        DataMap(people.c.id).table(people, Delete()).column(people.c.mail, "email").column(letters.c.content, "letter")
    )
    engine = engine_on(empty_url)
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.execute(people.insert(), [{"id": n, "mail": f"{MARK}{n}", "e-mail": "Ada"} for n in (1, 2)])
        session.execute(letters.insert(), [{"id": n, "writer": n, "content": MARK} for n in (1, 2)])
        corrected = at_once(data.rectify(session, "1", [Correction("email", "new")]))
        assert [*session.execute(select(people).where(people.c.id == 1))] == [(1, "new", "Ada")]
        at_once(kept.erase(session, "1"))
        assert [*session.execute(select(people).where(people.c.id == 1))] == [(1, "erased", "Ada")]
        done = at_once(data.erase(session, "1"))
        left = [tuple(row) for row in session.execute(select(letters).order_by(letters.c.id))]
    engine.dispose()
    assert corrected.tables == {"people": {"corrected": 1}}
    assert done.tables == {"letters": {"anonymised": 1, "detached": 1}, "people": {"deleted": 1}}
    assert left == [(1, None, None), (2, 2, MARK)]


def test_a_unique_column_is_known_by_its_name() -> None:
    people = Table(
        "people",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("e-mail", String, key="mail", nullable=False),
        UniqueConstraint("mail"),
    )
    with pytest.raises(ConfigurationError, match="it is unique"):
        DataMap(people.c.id).column(people.c.mail, "email", Anonymise("erased")).plan()


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
