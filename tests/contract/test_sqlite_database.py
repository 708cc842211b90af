"""What only SQLite must get right: its file, its one writer, and handlers that hang."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.errors import BadUrl, DatabaseBusy, DatabaseUnavailable
from postlude.storage.sqlite.schema import split
from postlude.storage.sqlite.session import Session
from postlude.storage.sqlite.store import SqliteStore
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES, Arranged, Undo, event, undone


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "outbox.db"), clock=ManualClock(), busy_timeout=0.2)
    await store.open()
    await store.schema.upgrade(lanes=LANES)
    yield store
    await store.close()


class SkippingClock(ManualClock):
    """Its monotonic time can be moved too."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
async def patient(store: SqliteStore, clock: SkippingClock) -> AsyncIterator[SqliteStore]:
    """On the same file, as another process: it waits for its turn longer than a loaded machine stands still."""
    patient = SqliteStore(store.database.path, clock=clock, busy_timeout=30)
    yield patient
    await patient.close()


@pytest.fixture
def given(store: SqliteStore) -> Arranged:
    return Arranged(store, Sqlite3Adapter())


class TestTheFile:
    @pytest.mark.parametrize("path", ["", ":memory:", "file::memory:?cache=shared", "file:x?mode=memory"])
    def test_a_database_in_memory_is_refused(self, path: str) -> None:
        with pytest.raises(BadUrl, match="Name a file"):
            SqliteStore(path, clock=ManualClock())

    async def test_a_missing_directory_is_told(self, tmp_path: Path) -> None:
        await self._expect(tmp_path / "nowhere" / "outbox.db", "nowhere does not exist")

    async def test_a_directory_is_not_a_database(self, tmp_path: Path) -> None:
        await self._expect(tmp_path, "cannot be opened")

    async def test_some_other_file_is_not_a_database(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("not a database at all, but long enough to look at\n" * 20)
        await self._expect(tmp_path / "notes.txt", "is not an SQLite database")

    async def test_the_store_comes_back_when_the_file_does(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "later" / "outbox.db"), clock=ManualClock())
        with pytest.raises(DatabaseUnavailable):
            await store.open()
        (tmp_path / "later").mkdir()
        await store.schema.upgrade(lanes=LANES)
        assert await store.reading.last_seq() == 0
        await store.close()

    async def test_the_settings_are_those_that_survive_a_crash(self, store: SqliteStore) -> None:
        server = await store.server()
        assert (server["journal_mode"], server["synchronous"], server["foreign_keys"]) == ("wal", 2, 1)

    async def _expect(self, path: Path, message: str) -> None:
        store = SqliteStore(str(path), clock=ManualClock())
        with pytest.raises(DatabaseUnavailable, match=message) as told:
            await store.open()
        assert told.value.hint
        await store.close()


class TestTheGate:
    async def test_writers_pass_in_the_order_they_came(self, given: Arranged) -> None:
        order: list[int] = []

        async def write(number: int) -> None:
            async with given.store.transaction():
                order.append(number)
                await asyncio.sleep(0.001)

        await asyncio.gather(*(write(number) for number in range(10)))
        assert order == list(range(10))

    async def test_reads_go_on_while_a_transaction_is_open(self, given: Arranged) -> None:
        async with given.store.transaction() as tx:
            await given.adapter.play(tx, given.store.scripts.append([event()]))
            assert await asyncio.wait_for(given.pending(), 20) == []
        assert len(await given.pending()) == 1

    async def test_our_writes_wait_for_an_open_transaction(self, given: Arranged) -> None:
        async with given.store.transaction():
            registering = asyncio.create_task(given.register())
            await asyncio.sleep(0.02)
            assert not registering.done()
        assert await registering in {live.id for live in await given.store.ownership.live_workers()}

    async def test_a_task_does_not_wait_for_itself(self, given: Arranged) -> None:
        async with given.store.transaction():
            with pytest.raises(DatabaseBusy, match="wait for itself"):
                await given.register()
            with pytest.raises(DatabaseBusy, match="wait for itself"):
                await given.append(event())
        await given.register()

    async def test_another_process_that_writes_too_long_is_told(self, given: Arranged, store: SqliteStore) -> None:
        stranger = sqlite3.connect(store.database.path, isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy, match="for too long"):
            await given.register()
        with pytest.raises(DatabaseBusy, match="for too long"):
            await given.append(event())
        stranger.rollback()
        stranger.close()
        await given.register()
        await given.append(event())

    async def test_another_process_that_writes_shortly_is_waited_for(self, patient: SqliteStore) -> None:
        given = Arranged(patient, Sqlite3Adapter())
        stranger = sqlite3.connect(patient.database.path, isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        registering = asyncio.create_task(given.register())
        await asyncio.sleep(0.05)
        assert not registering.done()
        stranger.rollback()
        stranger.close()
        assert await registering in {live.id for live in await given.store.ownership.live_workers()}

    async def test_a_pause_follows_each_long_transaction(self, given: Arranged) -> None:
        async with given.store.transaction():
            await asyncio.sleep(0.05)
            ended = time.monotonic()
        async with given.store.transaction():
            began = time.monotonic()
        assert began - ended >= 0.1 * 0.05

    async def test_the_next_one_pauses_and_not_the_caller(self, patient: SqliteStore, clock: SkippingClock) -> None:
        async with asyncio.timeout(30), patient.transaction():
            clock.skipped += 3000  # followed by a pause of five minutes
        next_one = asyncio.create_task(Arranged(patient, Sqlite3Adapter()).register())
        done, _ = await asyncio.wait({next_one}, timeout=0.1)
        assert not done
        next_one.cancel()
        await asyncio.wait({next_one})

    async def test_other_writers_are_not_starved(self, store: SqliteStore, patient: SqliteStore) -> None:
        stopping = asyncio.Event()
        turns = 0

        async def hog() -> None:
            nonlocal turns
            while not stopping.is_set():
                async with patient.transaction():
                    await asyncio.sleep(0.01)
                    turns += 1

        hogging = asyncio.create_task(hog())
        most = await asyncio.to_thread(partial(_write_often, store.database.path, times=30, turns=lambda: turns))
        stopping.set()
        await hogging
        assert turns > 0
        assert most < 200, "turns of the other during one write; seconds would tell of the machine"

    async def test_a_store_works_in_one_loop_after_another(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "outbox.db"), clock=ManualClock())
        given = Arranged(store, Sqlite3Adapter())
        await store.schema.upgrade(lanes=LANES)

        async def work() -> None:
            await asyncio.gather(*(given.append(event()) for _ in range(5)))

        await work()
        await asyncio.to_thread(asyncio.run, work())
        assert len(await given.pending()) == 10
        await store.close()


class TestAHungHandler:
    async def test_its_connection_is_taken_away(self, given: Arranged, store: SqliteStore) -> None:
        async def hang() -> None:
            async with store.transaction() as tx:
                await given.adapter.play(tx, store.scripts.append([event()]))
                store.abandon(tx)
                assert not given.adapter.is_in_transaction(tx)
                with pytest.raises(sqlite3.OperationalError, match="readonly"):
                    await given.adapter.play(tx, store.scripts.append([event()]))

        with pytest.raises(DatabaseUnavailable, match="taken away"):
            await hang()
        await given.append(event())
        assert len(await given.pending()) == 1

    async def test_an_open_cursor_does_not_keep_the_lock(self, given: Arranged, store: SqliteStore) -> None:
        await given.append(*(event() for _ in range(500)))
        with undone():
            async with store.transaction() as tx:
                await given.adapter.play(tx, store.scripts.append([event()]))
                cursor = tx.execute("SELECT * FROM postlude_event")
                cursor.fetchone()
                raise Undo
        await given.append(event())
        assert len(await given.seqs()) == 501
        del cursor

    async def test_a_cursor_left_open_does_not_hold_the_next_in_the_past(
        self, given: Arranged, store: SqliteStore
    ) -> None:
        await given.append(*(event() for _ in range(500)))
        async with store.transaction() as tx:
            cursor = tx.execute("SELECT * FROM postlude_event")
            cursor.fetchone()
        await given.register()
        await given.append(event())
        assert len(await given.seqs()) == 501
        del cursor

    async def test_a_statement_that_runs_for_ever_is_ended(self, given: Arranged, store: SqliteStore) -> None:
        running = threading.Event()
        for_ever = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

        def run_for_ever(tx: sqlite3.Connection) -> None:
            running.set()
            with suppress(sqlite3.Error):  # two threads share its error code, so it may even seem to go well
                tx.execute(for_ever).fetchall()

        with undone():
            async with store.transaction() as tx:
                thread = asyncio.get_running_loop().run_in_executor(None, run_for_ever, tx)
                await asyncio.to_thread(running.wait)
                raise Undo
        await asyncio.wait_for(thread, 30)
        await given.append(event())

    async def test_what_it_writes_afterwards_is_refused(self, given: Arranged, store: SqliteStore) -> None:
        ended = asyncio.Event()

        async def write_late(tx: sqlite3.Connection) -> None:
            await ended.wait()
            await given.adapter.play(tx, store.scripts.append([event()]))

        with undone():
            async with store.transaction() as tx:
                late = asyncio.create_task(write_late(tx))
                await asyncio.sleep(0)
                raise Undo
        async with store.transaction():
            ended.set()
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                await late
        assert await given.seqs() == []

    async def test_settings_of_one_handler_do_not_reach_the_next(self, given: Arranged, store: SqliteStore) -> None:
        async with store.transaction() as tx:
            tx.row_factory = sqlite3.Row
            tx.text_factory = bytes
        async with store.transaction() as tx:
            assert (tx.row_factory, tx.text_factory) == (None, str)
            assert tx.in_transaction

    @pytest.mark.parametrize("delay", [0.0, 0.0005, 0.002])
    async def test_cancelling_at_any_moment_leaves_it_usable(self, given: Arranged, delay: float) -> None:
        for _ in range(20):
            appending = asyncio.create_task(given.append(event()))
            await asyncio.sleep(delay)
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)
        before = len(await given.seqs())
        await given.append(event())
        assert len(await given.seqs()) == before + 1


class TestSpeed:
    async def test_a_settle_of_500_takes_milliseconds(self, given: Arranged) -> None:
        await given.append(*(event(lane=index % LANES) for index in range(500)))
        fence, entries = await given.own(), await given.pending()
        began = time.process_time()  # a loaded machine takes longer, and works no more
        assert await given.store.settling.settle_sent(fence, entries) == set()
        assert len(entries) == 500
        assert time.process_time() - began < 0.25

    @pytest.mark.parametrize(
        ("name", "index"),
        [
            ("read_pending", "postlude_delivery_hot"),
            ("read_pending", "postlude_delivery_block"),
            ("read_due", "postlude_delivery_due"),
            ("freed", "postlude_delivery_block"),
            ("events", "sqlite_autoindex_postlude_event_1"),
            ("settle_sent", "INTEGER PRIMARY KEY"),
            ("start", "INTEGER PRIMARY KEY"),
            ("record", "INTEGER PRIMARY KEY"),
            ("prune_events", "postlude_event_created"),
            ("prune_events", "postlude_event_caused"),
            ("prune_events_2", "postlude_event_created"),
            ("prune_receipts", "postlude_receipt_settled"),
            ("prune_dead", "postlude_delivery_dead"),
        ],
    )
    async def test_statements_use_their_index(self, store: SqliteStore, name: str, index: str) -> None:
        statement = store.database.statements[name]
        values = dict.fromkeys([*statement.parameters, "now"])
        plan = await store.database.read(
            lambda session: session.connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values).fetchall()
        )
        assert any(index in row[3] for row in plan), plan

    async def test_every_statement_can_be_prepared(self, store: SqliteStore) -> None:
        def prepare(session: Session) -> None:
            for statement in store.database.statements.values():
                values = dict.fromkeys([*statement.parameters, "now"])
                session.connection.execute(f"EXPLAIN {statement.sql}", values).fetchall()

        await store.database.read(prepare)


def test_a_script_is_split_at_its_statements_and_not_inside_a_trigger() -> None:
    script = "-- first;\nCREATE TABLE a (b);\nCREATE TRIGGER t AFTER INSERT ON a\nBEGIN\n  SELECT ';';\nEND;\nSELECT 1"
    assert [statement.strip() for statement in split(script)] == [
        "-- first;\nCREATE TABLE a (b);",
        "CREATE TRIGGER t AFTER INSERT ON a\nBEGIN\n  SELECT ';';\nEND;",
        "SELECT 1",
    ]


def _write_often(path: str, *, times: int, turns: Callable[[], int]) -> int:
    """How often the other one had its turn during one write, at most."""
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS own (n INTEGER)")
    most = 0
    for number in range(times):
        before = turns()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO own VALUES (?)", (number,))
        connection.commit()
        most = max(most, turns() - before)
    connection.close()
    return most
