"""SQLite passes the contract of stores."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.storage.sqlite.store import SqliteStore
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES
from postlude.testing.contracts.store import StoreContract


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
    async def blanks(self, tmp_path: Path, clock: ManualClock) -> AsyncIterator[tuple[SqliteStore, SqliteStore]]:
        path = str(tmp_path / "outbox.db")
        async with AsyncExitStack() as stack:
            stores = SqliteStore(path, clock=clock), SqliteStore(path, clock=clock)
            for store in stores:
                await store.open()
                stack.push_async_callback(store.close)
            yield stores

    @pytest.fixture
    async def store(self, blanks: tuple[SqliteStore, SqliteStore]) -> SqliteStore:
        await blanks[0].schema.upgrade(lanes=LANES)
        return blanks[0]

    @pytest.fixture
    async def other(self, blanks: tuple[SqliteStore, SqliteStore], store: SqliteStore) -> SqliteStore:
        return blanks[1]
