"""The data map on models and columns that are not what they seem: shared tables, ids that stand as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, Uuid, select
from sqlalchemy.orm import Session

from postlude import DataMap, Delete
from postlude.core.at_once import at_once
from tests.databases import Databases
from tests.shop_data import KINDS_OF_DATABASE, MARK, engine_on


@pytest.fixture(params=KINDS_OF_DATABASE)
def empty_url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh(schema=False)


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
