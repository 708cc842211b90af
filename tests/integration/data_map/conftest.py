"""A shop with some people in it, on every kind of database, and sessions of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.databases import Databases
from tests.shop_data import KINDS_OF_DATABASE, USERS, Async, Model, Sync, engine_on, fill


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
