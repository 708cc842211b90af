"""The adapter of aiosqlite's connections knows what only aiosqlite can do wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiosqlite
import pytest

from postlude.enlist.aiosqlite import AiosqliteAdapter
from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.errors import ConnectionClosed, DatabaseBusy, SchemaMissing
from postlude.storage.sqlite.store import SqliteStore
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES, Arranged, Undo, event, undone


class Connections:
    def __init__(self, path: str) -> None:
        self.path = path
        self.opened: list[aiosqlite.Connection] = []

    async def open(self, isolation_level: str | None = None) -> aiosqlite.Connection:
        self.opened.append(await aiosqlite.connect(self.path, timeout=0.05, isolation_level=isolation_level))
        return self.opened[-1]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "outbox.db"), clock=ManualClock(), busy_timeout=0.05)
    await store.schema.upgrade(lanes=LANES)
    yield store
    await store.close()


@pytest.fixture
async def handles(store: SqliteStore) -> AsyncIterator[Connections]:
    connections = Connections(store.database.path)
    yield connections
    for connection in connections.opened:
        await connection.close()


class TestAiosqliteAdapter:
    @pytest.fixture
    def given(self, store, store_adapter) -> Arranged:
        return Arranged(store, store_adapter)

    @pytest.fixture
    def adapter(self) -> AiosqliteAdapter:
        return AiosqliteAdapter()

    @pytest.fixture
    def store_adapter(self) -> Sqlite3Adapter:
        return Sqlite3Adapter()

    @pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
    async def test_a_handle_that_begins_by_itself_may_append(
        self, given: Arranged, adapter: AiosqliteAdapter, handles: Connections, level: str
    ) -> None:
        handle = await handles.open(level)
        adapter.require_transaction(handle)
        await adapter.play(handle, given.store.scripts.append([event()]))
        assert handle.in_transaction
        await handle.rollback()
        assert await given.pending() == []

    async def test_the_callers_rows_do_not_matter(
        self, given: Arranged, adapter: AiosqliteAdapter, handles: Connections
    ) -> None:
        handle = await handles.open("")
        handle.row_factory = aiosqlite.Row
        one = event()
        for _ in range(2):
            await adapter.play(handle, given.store.scripts.append([one, event()]))
        await handle.commit()
        assert handle.row_factory is aiosqlite.Row
        assert len(await given.pending()) == 3

    async def test_a_snapshot_of_the_past_says_to_begin_immediate(
        self, given: Arranged, adapter: AiosqliteAdapter, handles: Connections
    ) -> None:
        handle = await handles.open()
        await handle.execute("BEGIN")
        await handle.execute_fetchall("SELECT count(*) FROM postlude_event")
        await given.append(event())
        with pytest.raises(DatabaseBusy, match="BEGIN IMMEDIATE"):
            await adapter.play(handle, given.store.scripts.append([event()]))

    async def test_a_missing_schema_is_told(self, given: Arranged, adapter: AiosqliteAdapter, tmp_path: Path) -> None:
        handle = await Connections(str(tmp_path / "other.db")).open("")
        with pytest.raises(SchemaMissing):
            await adapter.play(handle, given.store.scripts.append([event()]))
        await handle.close()

    async def test_a_handle_that_is_not_open_yet_is_told(self, adapter: AiosqliteAdapter, store: SqliteStore) -> None:
        with pytest.raises(ConnectionClosed):
            adapter.require_transaction(aiosqlite.connect(store.database.path))

    async def test_a_handle_closed_inside_a_savepoint_does_not_hide_the_error(
        self, adapter: AiosqliteAdapter, handles: Connections
    ) -> None:
        handle = await handles.open()
        with undone():
            async with adapter.savepoint(handle):
                await handle.close()
                raise Undo


def test_the_adapter_does_not_import_the_driver() -> None:
    check = "import sys, postlude.enlist.aiosqlite; sys.exit('aiosqlite' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
