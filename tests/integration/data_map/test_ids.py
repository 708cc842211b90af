"""Ids of subjects, as text, on columns of all types."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Column, MetaData, String, Table, Uuid
from sqlalchemy.orm import Session

from postlude import Anonymise, DataMap, Delete, ErasureRefused, Postlude
from postlude.core.at_once import at_once
from postlude.core.calls import Correction
from tests.databases import Databases
from tests.shop_data import KINDS_OF_DATABASE, MARK, Async, Order, Sync, User, dumped, engine_on, shop_map


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


async def test_who_is_not_there_has_zero_counts(sessions: Any, url: str) -> None:
    before = dumped(url)
    done = await sessions.play(lambda session: shop_map().erase(session, "99"))
    assert not done.found
    assert done.total() == 0
    assert not done.retained
    assert dumped(url) == before


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
    before = dumped(url)
    if url.startswith("sqlite"):
        assert not (await sessions.play(lambda session: shop_map().erase(session, too_large))).found
    else:
        with pytest.raises(ErasureRefused, match="locking the subject") as refused:
            await sessions.play(lambda session: shop_map().erase(session, too_large))
        assert too_large not in "".join(traceback.format_exception(refused.value))
    assert dumped(url) == before


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
    before = dumped(url)
    with pytest.raises(ErasureRefused, match="anonymise code of orders") as refused:
        await sessions.play(lambda session: data.erase(session, "2"))
    told = "".join(traceback.format_exception(refused.value))
    assert MARK not in told
    assert dumped(url) == before
