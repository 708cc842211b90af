"""What a saga's statements read and write among many: one row by an index, and no index at all for a step."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from postlude.core.saga.instance import Instance
from postlude.core.statement import Statement
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.storage import statements
from postlude.storage.postgres.driver_asyncpg import compiled
from postlude.storage.postgres.saga_scripts import PostgresSagaScripts
from postlude.storage.postgres.store import PACKAGE
from postlude.storage.sqlite.store import PACKAGE as SQLITE
from postlude.testing.contracts.saga_arrange import following, lines, saga

SAGAS = 20_000
"""One in ten is live, and each live one has a deadline but the hundred that stalled."""
STATEMENTS: dict[str, Statement] = dict(statements.load(PACKAGE, schema="public"))
ONE = UUID(int=1)
FILL = f"""
    INSERT INTO postlude_saga (id, name, process_id, generation, status, version, hash, step, body, created_at,
                               updated_at, ended_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'saga-' || n % 5, 'o-' || n, 1,
           CASE WHEN n % 10 = 1 THEN 'running' ELSE 'completed' END, 1, 'h', 's', decode(repeat('00', 800), 'hex'),
           now() - n * interval '1 minute', now() - interval '1 hour',
           CASE WHEN n % 10 <> 1 THEN now() - n * interval '1 minute' END
      FROM generate_series(1, {SAGAS}) AS n;
    INSERT INTO postlude_saga_step (saga_id, version, at, what)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 1, now(), 'started' FROM generate_series(1, {SAGAS}) AS n;
    INSERT INTO postlude_event (event_id, type, topic, payload, saga_id)
    SELECT md5(n::text)::uuid, 'postlude.saga', '', '', lpad(to_hex(n), 32, '0')::uuid
      FROM generate_series(1, {SAGAS}) AS n;
    INSERT INTO postlude_delivery (event_id, destination, status, available_at)
    SELECT md5(n::text)::uuid, 'saga:x', 'scheduled', now() + interval '1 day'
      FROM generate_series(1, {SAGAS}) AS n WHERE n % 10 = 1 AND n > 1000;
    ANALYZE;
"""


@pytest.fixture
async def connection(any_postgres_url: str) -> AsyncIterator[Any]:
    settings = {"plan_cache_mode": "force_custom_plan", "jit": "off"}
    connection = await asyncpg.connect(any_postgres_url, server_settings=settings)
    try:
        await connection.execute(FILL)
        yield connection
    finally:
        await connection.close()


async def test_one_saga_among_many_is_read_by_an_index(connection: Any) -> None:
    for name, values, index in (
        ("saga", {"id": ONE}, "postlude_saga_pkey"),
        ("saga_locked", {"id": ONE}, "postlude_saga_pkey"),
        ("newest_saga", {"name": "saga-1", "process_id": "o-1"}, "postlude_saga_process"),
        ("newest_saga_locked", {"name": "saga-1", "process_id": "o-1"}, "postlude_saga_process"),
        ("saga_history", {"id": ONE, "limit": 10}, "postlude_saga_step_pkey"),
    ):
        nodes = await _explain(connection, name, **values)
        assert index in {node.get("Index Name") for node in nodes}, name
        assert _touched(nodes) <= 2, name
        assert not _scans_all(nodes, "postlude_saga"), name


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_a_write_finds_its_row_by_the_primary_key(connection: Any, mode: str) -> None:
    await connection.execute(f"SET plan_cache_mode = '{mode}'")
    one = saga(id=ONE, version=2)
    call = next(PostgresSagaScripts(STATEMENTS).write(one, lines("a", "b"), was=1))
    nodes = await _explain(connection, call.statement.name, **call.values)
    assert "postlude_saga_pkey" in {node.get("Index Name") for node in nodes}
    assert not _scans_all(nodes, "postlude_saga")


async def test_lists_and_retention_do_not_walk_all(connection: Any) -> None:
    anything = dict.fromkeys(("name", "status", "process_id", "since", "until", "after_at", "after_id"))
    after = {"after_at": datetime.now(UTC) - timedelta(days=3), "after_id": ONE}
    for values in (anything, anything | after, anything | {"name": "saga-1", "status": "running"}):
        nodes = await _explain(connection, "list_sagas", limit=50, **values)
        assert _touched(nodes) <= 60, values
    assert _touched(await _explain(connection, "live_sagas", name="saga-1", after="", limit=50)) <= 60
    pruned = await _explain(connection, "prune_sagas", ahead=timedelta(0), hours=24, limit=50)
    assert not _scans_all(pruned, "postlude_saga")


async def test_what_has_stalled_is_found_among_the_live_ones_only(connection: Any) -> None:
    nodes = await _explain(connection, "stalled_sagas", ahead=timedelta(0), older_than=60.0, limit=1000)
    assert nodes[0]["Actual Rows"] == 100
    assert not _scans_all(nodes, "postlude_saga")


async def test_a_step_writes_to_no_index_of_its_saga(connection: Any) -> None:
    """The new version of the row stays on its page and everything that points to it stands."""
    scripts, adapter = PostgresSagaScripts(STATEMENTS), AsyncpgAdapter()
    await connection.execute("TRUNCATE postlude_saga")
    one: Instance = saga()
    async with connection.transaction():
        assert await adapter.play(connection, scripts.write(one, lines("started"), was=0))
        for _ in range(4):
            one = following(one, state={"text": "x" * 500}, error="charge:Refused", hash="other")
            assert await adapter.play(connection, scripts.write(one, lines("succeeded"), was=one.version - 1))
        moved = await connection.fetchval("SELECT pg_stat_get_xact_tuples_hot_updated('postlude_saga'::regclass)")
    assert moved == 4


def test_sqlite_reads_them_by_an_index_too(sqlite_url: str) -> None:
    named = statements.load(SQLITE)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        for name, index in (
            ("saga", "sqlite_autoindex_postlude_saga_1 (id=?)"),
            ("saga_locked_2", "sqlite_autoindex_postlude_saga_1 (id=?)"),
            ("newest_saga", "postlude_saga_process (name=? AND process_id=?)"),
            ("newest_saga_locked_2", "postlude_saga_process (name=? AND process_id=?)"),
            ("write_saga", "sqlite_autoindex_postlude_saga_1 (id=?)"),
            ("saga_history", "postlude_saga_step_saga (saga_id=?)"),
            ("live_sagas", "postlude_saga_live (name=? AND process_id>?)"),
            ("list_sagas", "postlude_saga_created"),
            ("stalled_sagas", "postlude_event_saga (saga_id=?)"),
            ("prune_sagas_2", "postlude_saga_subject_saga (saga_id=?)"),
            ("prune_sagas_3", "postlude_saga_ended (ended_at<?)"),
        ):
            values = dict.fromkeys((*named[name].parameters, "limit"), 1)
            steps = connection.execute(f"EXPLAIN QUERY PLAN {named[name].sql}", values).fetchall()
            assert any(index in step[3] for step in steps), (name, steps)


async def _explain(connection: Any, name: str, /, **values: Any) -> list[dict[str, Any]]:
    """Executed, and undone again."""
    sql, names = compiled(STATEMENTS[name])
    transaction = connection.transaction()
    await transaction.start()
    explained = await connection.fetchval(
        f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {sql}", *[values[name] for name in names]
    )
    await transaction.rollback()
    return list(_walk(json.loads(explained)[0]["Plan"]))


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _walk(child)


def _touched(nodes: list[dict[str, Any]]) -> float:
    """Rows of tables that any scan looked at, taken or not."""
    scans = [node for node in nodes if "Scan" in node["Node Type"] and "Relation Name" in node]
    looked_at = [(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in scans]
    return float(sum(looked_at))


def _scans_all(nodes: list[dict[str, Any]], table: str) -> bool:
    return any(node["Node Type"] == "Seq Scan" and node["Relation Name"] == table for node in nodes)
