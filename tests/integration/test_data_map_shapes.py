"""The data map on models and columns that are not what they seem: shared tables, ids that stand as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, Table, Uuid, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from postlude import ConfigurationError, DataMap, Delete
from postlude.core.at_once import at_once
from tests.databases import Databases
from tests.shop_data import KINDS_OF_DATABASE, MARK, engine_on


@pytest.fixture(params=KINDS_OF_DATABASE)
def empty_url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh(schema=False)


class Model(DeclarativeBase):
    pass


class Person(Model):
    __tablename__ = "people"
    id: Mapped[int] = mapped_column(primary_key=True)


class Paper(Model):
    __tablename__ = "papers"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"))
    content: Mapped[str | None]
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "paper"}  # noqa: RUF012 - as SQLAlchemy types it


class Draft(Paper):
    """Its rows stand in the table of all papers."""

    __mapper_args__ = {"polymorphic_identity": "draft"}  # noqa: RUF012 - as SQLAlchemy types it


class Invoice(Paper):
    __mapper_args__ = {"polymorphic_identity": "invoice"}  # noqa: RUF012 - as SQLAlchemy types it


def test_rows_of_a_class_that_shares_its_table_cannot_be_deleted_alone() -> None:
    """Invoices would go with the drafts."""
    data = DataMap(Person.id).table(Draft, Delete())
    with pytest.raises(ConfigurationError, match="Draft has no table of its own, and rows of Paper"):
        data.plan()
    assert DataMap(Person.id).table(Paper, Delete()).column(Draft.content, "text").plan().deleted == {"papers"}


@pytest.mark.parametrize(
    ("kind", "ada", "bob"), [(Integer, 7, 8), (Uuid, UUID(int=7), UUID(int=8)), (String, "ada", "bob")]
)
def test_an_id_without_a_reference_may_stand_as_text(empty_url: str, kind: Any, ada: Any, bob: Any) -> None:
    metadata = MetaData()
    people = Table("people", metadata, Column("id", kind, primary_key=True))
    visits = Table(
        "visits", metadata, Column("id", Integer, primary_key=True), Column("who", String), Column("ip", String)
    )
    data = DataMap(people.c.id).table(visits, Delete(), path=visits.c.who).column(visits.c.ip, "ip")
    engine = engine_on(empty_url)
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.execute(people.insert(), [{"id": ada}, {"id": bob}])
        session.execute(visits.insert(), [{"id": n, "who": str(who), "ip": MARK} for n, who in enumerate((ada, bob))])
        done = at_once(data.erase(session, str(ada)))
        left = session.execute(select(visits.c.who)).scalars().all()
    engine.dispose()
    assert done.tables == {"visits": {"deleted": 1}}
    assert left == [str(bob)]
