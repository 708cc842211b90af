"""SQLite passes the contract of stores."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.storage.sqlite.store import SqliteStore
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES
from postlude.testing.contracts.store import StoreContract
from tests.databases import copy_of, finish

Open = Callable[[Path], Awaitable[SqliteStore]]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stores of the contract are copied from; its own tests of upgrades make theirs."""
    path = tmp_path_factory.mktemp("contract") / "schema.db"

    async def upgrade() -> None:
        store = SqliteStore(str(path), clock=ManualClock())
        await store.open()
        await store.schema.upgrade(lanes=LANES)
        await store.close()

    finish(upgrade())
    return path


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def adapter(self) -> Sqlite3Adapter:
        return Sqlite3Adapter()

    @pytest.fixture
    def refusal(self) -> type[Exception]:
        return sqlite3.IntegrityError

    @pytest.fixture
    async def opened(self, clock: ManualClock) -> AsyncIterator[Open]:
        async with AsyncExitStack() as stack:

            async def opened(path: Path) -> SqliteStore:
                store = SqliteStore(str(path), clock=clock)
                await store.open()
                stack.push_async_callback(store.close)
                return store

            yield opened

    @pytest.fixture
    async def blanks(self, tmp_path: Path, opened: Open) -> tuple[SqliteStore, SqliteStore]:
        return await opened(tmp_path / "blank.db"), await opened(tmp_path / "blank.db")

    @pytest.fixture
    def path(self, tmp_path: Path, installed: Path) -> Path:
        copy_of(installed, tmp_path / "outbox.db")
        return tmp_path / "outbox.db"

    @pytest.fixture
    async def store(self, path: Path, opened: Open) -> SqliteStore:
        return await opened(path)

    @pytest.fixture
    async def other(self, path: Path, opened: Open) -> SqliteStore:
        return await opened(path)
