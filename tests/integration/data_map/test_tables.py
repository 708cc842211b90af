"""The data map on tables of other shapes: comments of others, references of several columns, names and keys."""

from __future__ import annotations

from uuid import UUID

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
    select,
)
from sqlalchemy.orm import Session

from postlude import Anonymise, ConfigurationError, DataMap, Delete
from postlude.core.at_once import at_once
from postlude.core.calls import Correction
from tests.shop_data import MARK, engine_on


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
