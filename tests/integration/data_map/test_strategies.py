"""The data map on real databases: every strategy, sync and async sessions, and nothing but the subject's rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from postlude import ConfigurationError, DataMap, ErasureRefused, Postlude
from postlude.core.calls import Correction
from postlude.ports.subject_data import SubjectData
from tests.databases import Databases
from tests.shop_data import (
    KINDS_OF_DATABASE,
    MARK,
    USERS,
    Async,
    Model,
    Order,
    Sync,
    User,
    dumped,
    engine_on,
    fill,
    shop_map,
)


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
    left = dumped(url)
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
    assert [row[:2] for row in dumped(url)["users"]] == [(1, f"{MARK}1"), (3, "new")]


def test_an_app_refuses_a_map_that_cannot_work(tmp_path: Path) -> None:
    app = Postlude(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(ConfigurationError, match="orders: several paths lead"):
        app.erasure.use(DataMap(User.id).column(Order.phone, "phone"))
    assert app.erasure.data is None


async def test_rows_of_others_stay_as_they_are(sessions: Any, url: str) -> None:
    before = dumped(url)
    await sessions.play(lambda session: shop_map().erase(session, "2"))
    after = dumped(url)
    for name, rows in before.items():
        others = [row for row in rows if row in after[name]]
        assert len(others) == {"logins": 2, "orders": 4, "items": 4, "invoices": 6}.get(name, 2)


async def test_whom_many_rows_refer_to_is_let_go(sessions: Any, url: str) -> None:
    """The first user has referred everybody and approved every order."""
    done = await sessions.play(lambda session: shop_map().erase(session, "1"))
    # Six orders are let go by their approver, two of them by their owner too; users by whom they were referred.
    assert done.tables["orders"] == {"anonymised": 2, "detached": 8}
    left = dumped(url)
    assert {row[2] for row in left["users"]} == {None}
    assert {(row[1], row[2]) for row in left["orders"]} == {(None, None), (2, None), (3, None)}


async def test_a_second_erasure_finds_nothing_to_delete(sessions: Any, url: str) -> None:
    await sessions.play(lambda session: shop_map().erase(session, "2"))
    before = dumped(url)
    done = await sessions.play(lambda session: shop_map().erase(session, "2"))
    assert done.total() == 0
    assert dumped(url) == before


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
    left = dumped(url)
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
    before = dumped(url)

    async def work(session: Any) -> None:
        with pytest.raises(ErasureRefused) as refused:
            await shop_map().rectify(session, "2", corrections)
        assert MARK not in str(refused.value)

    await sessions.play(work)
    assert dumped(url) == before


async def test_subjects_come_page_by_page(sessions: Any) -> None:
    data = shop_map()
    first = await sessions.play(lambda session: data.subject_ids(session, limit=2))
    second = await sessions.play(lambda session: data.subject_ids(session, after=first[-1], limit=2))
    assert (first, second) == (["1", "2"], ["3"])
