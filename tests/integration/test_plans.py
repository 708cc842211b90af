"""What the planner makes of the statements that run all the time, with a million rows that are none of their business.

Worker sessions ask for custom plans; a pooler or a caller's own settings may give generic ones, so both must do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from postlude.core.statement import Statement
from postlude.storage import statements
from postlude.storage.postgres.driver_asyncpg import compiled
from postlude.storage.postgres.store import PACKAGE
from tests.databases import PostgresDatabases, PostgresTemplates, Server, finish

# One process fills each server once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BACKLOG = 1_000_000
LANES = 64
HEADS = 64
EVENTS = 60_000
WORKER = UUID(int=1)
STATEMENTS: dict[str, Statement] = dict(statements.load(PACKAGE, schema="public"))
MODES = pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])

FILL = f"""
    ALTER TABLE postlude_delivery DISABLE TRIGGER USER;

    INSERT INTO postlude_delivery (seq, event_id, destination, lane, key) OVERRIDING SYSTEM VALUE
    SELECT n, md5(n::text)::uuid, 'default', n % {LANES}, 'key-' || n % 5000
      FROM generate_series(1, {BACKLOG}) AS n;

    INSERT INTO postlude_delivery (seq, event_id, destination, lane, status, available_at) OVERRIDING SYSTEM VALUE
    SELECT n, md5(n::text)::uuid, 'default', n % {LANES}, 'scheduled', now() + interval '30 days' + n * interval '1 second'
      FROM generate_series({BACKLOG} + 1, 2 * {BACKLOG}) AS n;

    UPDATE postlude_delivery SET status = 'failed', blocks = true, attempts = 1, available_at = now() + interval '1 hour'
     WHERE seq <= {HEADS};

    INSERT INTO postlude_event (event_id, type, topic, payload)
    SELECT (lpad(to_hex((extract(epoch FROM now() + n % 3 * interval '1 day') * 1000)::bigint), 12, '0')
            || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid, 'test.noted', 'noted', ''
      FROM generate_series(1, {EVENTS}) AS n;

    INSERT INTO postlude_worker (id, name, version, lease_until, destinations)
    VALUES ('{WORKER}', 'w', '0', now() + interval '1 hour', '{{default}}');
    INSERT INTO postlude_lane (destination, lane, owner, epoch) SELECT 'default', n, '{WORKER}', 1
      FROM generate_series(0, {LANES - 1}) AS n;
"""
"""A backlog, as much that is scheduled for next month, blocked heads, and events of three days."""


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, tuple[Server, str]]]:
    """By server, the database that was filled; gone with the module."""
    databases: dict[str, tuple[Server, str]] = {}
    yield databases
    for server, database in databases.values():
        server.drop(database)


@pytest.fixture
def backlog_url(
    postgres_database: PostgresDatabases, postgres_template: PostgresTemplates, made: dict[str, tuple[Server, str]]
) -> str:
    server = postgres_database.server
    if server.name not in made:
        database = server.make(postgres_template[server.name])
        finish(_fill(server.url(database)))
        made[server.name] = (server, database)
    return server.url(made[server.name][1])


async def _fill(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"maintenance_work_mem": "256MB"})
    try:
        # Rows first, indexes after them: several times faster.
        indexes = await connection.fetch(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'postlude_delivery' AND indexname NOT LIKE '%pkey'"
        )
        assert len(indexes) >= 5
        for name, _ in indexes:
            await connection.execute(f"DROP INDEX {name}")
        await connection.execute(FILL)
        for _, definition in indexes:
            await connection.execute(definition)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


class Plan:
    """An executed plan, flattened."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.nodes = list(_walk(root))

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    @property
    def tables(self) -> set[str]:
        return {node["Relation Name"] for node in self.nodes if "Relation Name" in node and node["Actual Loops"]}

    def of(self, table: str) -> list[dict[str, Any]]:
        """The nodes that read a table."""
        return [node for node in self.nodes if node.get("Relation Name") == table and "Scan" in node["Node Type"]]

    @property
    def touched(self) -> int:
        """Rows that any scan looked at, taken or not."""
        return sum(
            round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
            for node in self.nodes
            if "Scan" in node["Node Type"] and "Relation Name" in node
        )

    @property
    def sorted_rows(self) -> int:
        return max((node["Actual Rows"] for node in self.nodes if "Sort" in node["Node Type"]), default=0)

    @property
    def scans_a_whole_table(self) -> bool:
        return any(node["Node Type"] == "Seq Scan" for node in self.of("postlude_delivery"))


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _walk(child)


async def explain(url: str, mode: str, name: str, **values: Any) -> Plan:
    """Prepared and executed in that mode, and undone again."""
    sql, names = compiled(STATEMENTS[name])
    connection = await asyncpg.connect(url, server_settings={"plan_cache_mode": mode, "jit": "off"})
    try:
        transaction = connection.transaction()
        await transaction.start()
        arguments = [values[name] for name in names]
        explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {sql}", *arguments)
        await transaction.rollback()
        return Plan(json.loads(explained)[0]["Plan"])
    finally:
        await connection.close()


TRACKS = {
    "destination": "default",
    "lanes": list(range(LANES)),
    "priorities": [1] * LANES,
    "floors": [0] * LANES,
    "limit": 8,
}
NOW = {"ahead": timedelta(0)}
FENCE = {"worker": WORKER, "destination": "default", "lanes": list(range(LANES)), "epochs": [1] * LANES}


@MODES
async def test_read_pending_uses_the_hot_index_and_sorts_no_backlog(backlog_url: str, mode: str) -> None:
    plan = await explain(backlog_url, mode, "read_pending", **TRACKS)
    assert "postlude_delivery_hot" in plan.indexes
    assert not plan.scans_a_whole_table
    assert plan.sorted_rows <= 8
    assert plan.touched <= 4 * LANES * 8, "at most the limit of each lane, and a probe for each row"


@MODES
async def test_read_pending_from_a_floor_does_not_walk_what_is_below(backlog_url: str, mode: str) -> None:
    plan = await explain(backlog_url, mode, "read_pending", **(TRACKS | {"floors": [BACKLOG - 100 * LANES] * LANES}))
    assert "postlude_delivery_hot" in plan.indexes
    assert plan.touched <= 4 * LANES * 8


@MODES
async def test_read_due_uses_the_due_index_and_does_not_walk_what_is_scheduled(backlog_url: str, mode: str) -> None:
    values = {"destination": "default", "lanes": list(range(LANES)), "limit": 8, "excluding": [], **NOW}
    plan = await explain(backlog_url, mode, "read_due", **values)
    assert "postlude_delivery_due" in plan.indexes
    assert not plan.scans_a_whole_table
    assert plan.sorted_rows <= 8
    assert plan.touched <= 4 * LANES * 8


@MODES
async def test_freed_uses_the_block_index(backlog_url: str, mode: str) -> None:
    keys = [f"key-{n}" for n in range(1000)]
    plan = await explain(backlog_url, mode, "freed", destination="default", keys=keys, seqs=[BACKLOG] * len(keys))
    assert "postlude_delivery_block" in plan.indexes
    assert not plan.scans_a_whole_table
    assert plan.touched <= 4 * len(keys)


@MODES
async def test_news_uses_the_primary_key(backlog_url: str, mode: str) -> None:
    plan = await explain(backlog_url, mode, "news", after=2 * BACKLOG - 1000, limit=1000)
    assert "postlude_delivery_pkey" in plan.indexes
    assert plan.touched <= 1000


@MODES
async def test_settle_sent_uses_the_primary_key(backlog_url: str, mode: str) -> None:
    seqs = list(range(1000, 1500))
    plan = await explain(backlog_url, mode, "settle_sent", seqs=seqs, **FENCE)
    assert "postlude_delivery_pkey" in plan.indexes
    assert not plan.scans_a_whole_table
    assert plan.touched <= 4 * len(seqs)


@MODES
async def test_verdicts_and_starts_use_the_primary_key(backlog_url: str, mode: str) -> None:
    seqs = list(range(1000, 1500))
    was = {"seqs": seqs, "was_statuses": ["pending"] * 500, "was_attempts": [0] * 500, **FENCE, **NOW}
    start = await explain(backlog_url, mode, "start", lease=1.0, **was)
    given = {
        "statuses": ["failed"] * 500,
        "blocks": [True] * 500,
        "attempts": [1] * 500,
        "starts": [0] * 500,
        "delays": [1.0] * 500,
        "untils": [None] * 500,
        "errors": [None] * 500,
    }
    record = await explain(backlog_url, mode, "record", **was, **given)
    for plan in (start, record):
        assert "postlude_delivery_pkey" in plan.indexes
        assert not plan.scans_a_whole_table
        assert plan.touched <= 8 * len(seqs)


async def test_events_are_read_from_the_partitions_of_the_batch_only(backlog_url: str) -> None:
    connection = await asyncpg.connect(backlog_url)
    try:
        found = await connection.fetch(
            "SELECT event_id, tableoid::regclass::text AS part FROM postlude_event ORDER BY event_id LIMIT 500"
        )
    finally:
        await connection.close()
    (part,) = {row["part"] for row in found}
    ids = [row["event_id"] for row in found]
    values = {"event_ids": ids, "low": ids[0], "high": ids[-1]}
    plan = await explain(backlog_url, "force_custom_plan", "events", **values)
    assert {node["Relation Name"] for node in plan.nodes if "Relation Name" in node} == {part}
    assert plan.touched <= 500
    generic = await explain(backlog_url, "force_generic_plan", "events", **values)
    assert generic.touched <= 500, "slower to plan, but no more to read"
