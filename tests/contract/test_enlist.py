"""Every kind of handle passes the one contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from postlude import Settings
from postlude.connections import adapters_of, open_store
from postlude.ports.enlist import Adapter
from postlude.ports.store import Store
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.enlist import EnlistContract
from tests.callers import KINDS, Callers, Kind
from tests.conftest import ON_POSTGRES, ON_SQLITE
from tests.matrix import ran


def _cases() -> list[Any]:
    cases = []
    for kind in KINDS:
        on = ON_SQLITE if kind.database == "sqlite" else ON_POSTGRES[: None if kind.driver == "asyncpg" else 1]
        # Only the plain driver speaks to every version: the others differ in Python, not on the server.
        on = on if kind.handle == "asyncpg connection" else on[:1]
        cases += [pytest.param((kind, one.values[0]), marks=one.marks, id=f"{kind.id}-{one.values[0]}") for one in on]
    return cases


@pytest.fixture(params=_cases())
def case(request: pytest.FixtureRequest) -> tuple[Kind, str]:
    kind, server = request.param
    ran(request, kind, "append")
    return kind, server


@pytest.fixture
def url(case: tuple[Kind, str], swept_url: Callable[[str], str]) -> str:
    return swept_url(case[1])


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = open_store(url, Settings.load(environ={}, pool={"min": 1, "max": 3}), ManualClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def handles(
    case: tuple[Kind, str], url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callers]:
    # The contract runs in an event loop, where Django would refuse; its users call it from threads.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    callers = case[0].callers(url)
    yield callers
    await callers.end()


class TestEveryKind(EnlistContract):
    @pytest.fixture
    def adapter(self, case: tuple[Kind, str]) -> Adapter:
        return case[0].adapter()

    @pytest.fixture
    async def store_adapter(self, store: Store) -> Adapter:
        async with store.transaction() as handle:
            return next(one for one in adapters_of() if one.fits(handle))
