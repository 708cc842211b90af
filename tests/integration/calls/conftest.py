"""A database of each kind, and apps on it that call vendors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from postlude import Postlude
from tests.calling import ON_BOTH, calling_apps
from tests.databases import Databases


@pytest.fixture(params=ON_BOTH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
async def make(url: str) -> AsyncIterator[Callable[..., Postlude]]:
    async with calling_apps(url) as make:
        yield make
