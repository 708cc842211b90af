"""What becomes of an instance in a database: every shape comes back as it was, and no handle can go around a lock."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from postlude.core.saga.decision import Record
from postlude.core.saga.instance import Early, Instance, Phase, SagaStatus, StepState
from postlude.core.statement import Script
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.errors import DatabaseBusy
from postlude.testing.contracts.arrange import Arranged
from postlude.testing.contracts.saga_arrange import MINE, NAME, following, lines, on_its_way, play, saga, write
from tests.databases import Databases
from tests.engine import make_app

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
shown = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
moments = st.integers(0, 4 * 10**15).map(
    lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
)
maybe_text = st.none() | text
maybe_id = st.none() | st.uuids()
counts = st.integers(0, 2**31 - 1)
steps = st.builds(
    StepState, name=shown, shape=text, phase=st.sampled_from(Phase), attempt=counts, key=maybe_text, result=values,
    code=maybe_text, by=maybe_id, order=counts, undo_attempt=counts, undo_key=maybe_text, undo_by=maybe_id,
)  # fmt: skip
earlies = st.builds(Early, event_id=st.uuids(), type=text, value=values)
bare = st.builds(
    Instance, id=st.uuids(), name=shown, process_id=shown.map(lambda one: f"p{one}"), generation=st.integers(1, 2**31 - 1),
    status=st.sampled_from(SagaStatus), version=st.integers(1, 2**31 - 2), hash=shown,
    steps=st.lists(steps, min_size=1, max_size=4).map(tuple), state=values, error=maybe_text, turned=st.booleans(),
    held=maybe_text, early=st.lists(earlies, max_size=2).map(tuple), created_at=moments, updated_at=moments,
)  # fmt: skip
instances = st.builds(lambda one, end: replace(one, ended_at=end if one.status.is_end else None), bare, moments)
records = st.builds(
    Record, at=moments, what=shown, step=st.none() | shown, attempt=counts, detail=st.none() | shown
)  # fmt: skip


@pytest.fixture
async def arranged(database: Databases) -> AsyncIterator[Arranged]:
    async with _arranged(database.fresh()) as arranged:
        yield arranged


@asynccontextmanager
async def _arranged(url: str) -> AsyncIterator[Arranged]:
    async with make_app(url) as app:
        yield Arranged(app.store, Sqlite3Adapter() if app.store.dialect == "sqlite" else AsyncpgAdapter())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(one=instances, history=st.lists(records, max_size=4))
async def test_every_shape_comes_back_as_it_was(arranged: Arranged, one: Instance, history: list[Record]) -> None:
    one = replace(one, id=uuid4(), process_id=f"{one.process_id}{uuid4()}")
    scripts, sagas = arranged.store.saga_scripts, arranged.store.sagas
    assert await write(arranged, one, history, was=0)
    assert await play(arranged, scripts.get(one.id, lock=True)) == one
    assert await sagas.newest(one.name, one.process_id) == one
    assert await sagas.history(one.id, limit=10) == history
    second = replace(one, version=one.version + 1, steps=one.steps[::-1])
    assert await write(arranged, second, history)
    assert await sagas.get(one.id) == second
    assert await sagas.history(one.id, limit=10) == history * 2


async def test_times_of_other_zones_are_the_same_moments(arranged: Arranged) -> None:
    at = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    one = saga(at=at)
    assert await write(arranged, one, lines("started", at=at))
    assert await arranged.store.sagas.get(one.id) == one
    assert await arranged.store.sagas.history(one.id, limit=1) == lines("started", at=at)


async def test_a_deadline_that_is_being_delivered_is_not_waited_for(any_postgres_url: str) -> None:
    """Whoever delivers it waits for the saga's row, which whoever cancels it holds."""
    connection = await asyncpg.connect(any_postgres_url)
    try:
        async with _arranged(any_postgres_url) as arranged:
            cancel = arranged.store.saga_scripts.cancel
            event_id = await on_its_way(arranged, uuid4(), available_at=datetime(2100, 1, 1, tzinfo=UTC))
            async with connection.transaction():
                await connection.execute("SELECT FROM postlude_delivery FOR UPDATE")
                assert await play(arranged, cancel(MINE, [event_id])) == 0
            assert await play(arranged, cancel(MINE, [event_id])) == 1
    finally:
        await connection.close()


async def test_a_lock_on_a_callers_own_sqlite_handle_is_one(sqlite_url: str) -> None:
    """Its transaction began without a word: only a write makes it the writer, whether or not there is such a saga."""
    path, adapter = sqlite_url.removeprefix("sqlite:///"), Sqlite3Adapter()
    async with _arranged(sqlite_url) as arranged:
        one, scripts = saga(), arranged.store.saga_scripts
        assert await write(arranged, one)
        with closing(sqlite3.connect(path, timeout=0)) as first, closing(sqlite3.connect(path, timeout=0)) as second:
            assert await adapter.play(first, scripts.get(one.id, lock=True)) == one
            for script in (scripts.get(one.id, lock=True), scripts.find(NAME, "nobody", lock=True)):
                with pytest.raises(DatabaseBusy):
                    await adapter.play(second, script)
            assert await adapter.play(first, scripts.write(following(one), (), was=1))
            first.commit()
            assert await adapter.play(second, scripts.get(one.id, lock=True)) == following(one)
            second.rollback()


@pytest.mark.parametrize(
    ("part", "may"),
    [
        ("app", {"find", "start"}),
        ("worker", {"find", "start", "lock", "write", "note", "cancel"}),
        ("viewer", {"find"}),
    ],
)
async def test_a_role_may_do_its_part(any_postgres_url: str, part: str, may: set[str]) -> None:
    role = f"part_{uuid4().hex[:12]}"
    one, adapter = saga(), AsyncpgAdapter()
    connection = await asyncpg.connect(any_postgres_url)
    try:
        async with _arranged(any_postgres_url) as arranged:
            assert await write(arranged, one)
            scripts = arranged.store.saga_scripts
            await connection.execute(arranged.store.schema.grants(part, role))
            acts: dict[str, Script[Any]] = {
                "find": scripts.find(NAME, "o-1", lock=False),
                "start": scripts.write(saga("o-2"), lines("started"), was=0),
                "lock": scripts.get(one.id, lock=True),
                "write": scripts.write(following(one), lines("succeeded"), was=1),
                "note": scripts.note(one.id, 1, lines("late")),
                "cancel": scripts.cancel(MINE, [uuid4()]),
            }
            done = set()
            for name, script in acts.items():
                with suppress(asyncpg.InsufficientPrivilegeError):
                    async with connection.transaction():
                        await connection.execute(f"SET LOCAL ROLE {role}")
                        await adapter.play(connection, script)
                        done.add(name)
            assert done == may
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await connection.close()
