"""The adapter of sqlite3's connections knows what only sqlite3 can do wrong."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.errors import ConnectionClosed, DatabaseBusy, NotInTransaction, SchemaMissing
from postlude.storage.sqlite.store import SqliteStore
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES, Arranged, Undo, event, undone


class Connections:
    def __init__(self, path: str) -> None:
        self.path = path
        self.opened: list[sqlite3.Connection] = []

    async def open(self, isolation_level: Any = None) -> sqlite3.Connection:
        self.opened.append(sqlite3.connect(self.path, timeout=0.05, isolation_level=isolation_level))
        return self.opened[-1]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "outbox.db"), clock=ManualClock(), busy_timeout=0.05)
    await store.schema.upgrade(lanes=LANES)
    yield store
    await store.close()


@pytest.fixture
def handles(store: SqliteStore) -> Iterator[Connections]:
    connections = Connections(store.database.path)
    yield connections
    for connection in connections.opened:
        connection.close()


class TestSqlite3Adapter:
    @pytest.fixture
    def given(self, store, store_adapter) -> Arranged:
        return Arranged(store, store_adapter)

    @pytest.fixture
    def adapter(self) -> Sqlite3Adapter:
        return Sqlite3Adapter()

    @pytest.fixture
    def store_adapter(self) -> Sqlite3Adapter:
        return Sqlite3Adapter()

    @pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
    @pytest.mark.parametrize("many", [False, True])
    async def test_a_handle_that_begins_by_itself_may_append(
        self, given: Arranged, adapter: Sqlite3Adapter, handles: Connections, level: str, many: bool
    ) -> None:
        handle = await handles.open(level)
        adapter.require_transaction(handle)
        events = [event(), event()] if many else [event()]
        await adapter.play(handle, given.store.scripts.append(events))
        assert handle.in_transaction
        handle.rollback()
        assert await given.pending() == []

    async def test_a_savepoint_first_still_leaves_the_commit_to_the_caller(
        self, given: Arranged, adapter: Sqlite3Adapter, handles: Connections
    ) -> None:
        handle = await handles.open("")
        async with adapter.savepoint(handle):
            await adapter.play(handle, given.store.scripts.append([event()]))
        assert handle.in_transaction
        handle.rollback()
        assert await given.pending() == []

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with Python 3.12")
    async def test_the_autocommit_attribute_decides(
        self, given: Arranged, adapter: Sqlite3Adapter, handles: Connections
    ) -> None:
        handle = await handles.open("")
        handle.autocommit = True  # type: ignore[attr-defined]
        with pytest.raises(NotInTransaction):
            adapter.require_transaction(handle)
        handle.autocommit = False  # type: ignore[attr-defined]
        adapter.require_transaction(handle)

    @pytest.mark.parametrize("rows", [sqlite3.Row, lambda cursor, row: dict(enumerate(row)), lambda cursor, row: None])
    async def test_the_callers_rows_do_not_matter(
        self, given: Arranged, adapter: Sqlite3Adapter, handles: Connections, rows
    ) -> None:
        handle = await handles.open("")
        handle.row_factory = rows
        handle.text_factory = bytes
        one = event()
        for _ in range(2):
            await adapter.play(handle, given.store.scripts.append([one, event()]))
        handle.commit()
        assert handle.row_factory is rows
        assert len(await given.pending()) == 3

    async def test_a_snapshot_of_the_past_says_to_begin_immediate(
        self, given: Arranged, adapter: Sqlite3Adapter, handles: Connections
    ) -> None:
        handle = await handles.open()
        handle.execute("BEGIN")
        handle.execute("SELECT count(*) FROM postlude_event").fetchall()
        await given.append(event())
        with pytest.raises(DatabaseBusy, match="BEGIN IMMEDIATE"):
            await adapter.play(handle, given.store.scripts.append([event()]))

    async def test_another_writer_is_told(self, given: Arranged, adapter: Sqlite3Adapter, handles: Connections) -> None:
        writer, handle = await handles.open(), await handles.open("")
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy):
            await adapter.play(handle, given.store.scripts.append([event()]))

    async def test_a_missing_schema_is_told(self, given: Arranged, adapter: Sqlite3Adapter, tmp_path: Path) -> None:
        handles = Connections(str(tmp_path / "other.db"))
        handle = await handles.open("")
        with pytest.raises(SchemaMissing):
            await adapter.play(handle, given.store.scripts.append([event()]))
        handle.close()

    async def test_a_handle_closed_inside_a_savepoint_does_not_hide_the_error(
        self, adapter: Sqlite3Adapter, handles: Connections
    ) -> None:
        handle = await handles.open()
        with undone():
            async with adapter.savepoint(handle):
                handle.close()
                raise Undo
        with pytest.raises(ConnectionClosed):
            async with adapter.savepoint(handle):
                pass
