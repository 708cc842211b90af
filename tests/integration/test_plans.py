"""The statements that run all day long use their indexes, whatever the backlog and however they were planned.

Plans are read, never timed: times belong to `dev bench`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from postlude.core.statement import Statement
from postlude.core.uuid7 import uuid7
from postlude.storage import statements
from postlude.storage.postgres.store import PACKAGE
from tests.engine import LANES, key_in

MILLION = 1_000_000
FOLLOWERS = 100_000
LIMIT = 50
BATCH = 500
STATEMENTS = statements.load(PACKAGE, schema="public")
ALL_LANES = list(range(LANES))
MODES = ("force_custom_plan", "force_generic_plan")

Node = dict[str, Any]

FILL = """
    INSERT INTO postlude_delivery (event_id, destination, lane, key, status, available_at)
    SELECT lpad(to_hex($4::int * $1 + n), 32, '0')::uuid, 'default', n % $2, 'key-' || n % 5000, $3, now() + (n - $1 / 2) * interval '1 s'
      FROM generate_series(1, $1::int) AS n
"""
"""Ids in order, as those of version 7 are: random ones make this take minutes."""
BLOCK = """
    INSERT INTO postlude_delivery (event_id, destination, lane, key)
    SELECT gen_random_uuid(), 'default', k.lane, k.key
      FROM generate_series(0, $3::int) AS g (n) CROSS JOIN unnest($1::text[], $2::smallint[]) AS k (key, lane) ORDER BY g.n
"""
FAIL_HEADS = """
    UPDATE postlude_delivery SET status = 'failed', blocks = true, available_at = clock_timestamp() + interval '1 hour'
     WHERE seq IN (SELECT min(seq) FROM postlude_delivery WHERE key = ANY($1::text[]) GROUP BY key)
"""


class Planner:
    """Asks one server how it would run the engine's statements."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.connection = connection

    async def plan(self, name: str, mode: str, values: Mapping[str, Any], *, run: bool = False) -> Node:
        """As a prepared statement, since only that can be made to have a generic plan."""
        statement = STATEMENTS[name]
        await self._prepare(statement)
        await self.connection.execute(f"SET plan_cache_mode = {mode}")
        given = ", ".join(literal(value) for value in statement.arguments(values))
        options = "ANALYZE, BUFFERS off, TIMING off, FORMAT JSON" if run else "FORMAT JSON"
        answer = await self.connection.fetchval(f"EXPLAIN ({options}) EXECUTE {name} ({given})")
        plan: Node = json.loads(answer)[0]["Plan"]
        return plan

    async def _prepare(self, statement: Statement) -> None:
        if not await self.connection.fetchval("SELECT 1 FROM pg_prepared_statements WHERE name = $1", statement.name):
            sql = statement.compile("dollar")
            types = [one.name for one in (await self.connection.prepare(sql)).get_parameters()]
            await self.connection.execute(f"PREPARE {statement.name} ({', '.join(types)}) AS {sql}")


@pytest.fixture
async def planner(postgres_url: str) -> Any:
    connection = await asyncpg.connect(postgres_url, command_timeout=150, server_settings={"jit": "off"})
    yield Planner(connection)
    await connection.close()


def literal(value: Any) -> str:
    """A value as an untyped literal; none of ours has a quote in it."""
    if isinstance(value, list):
        return "'{" + ",".join(str(one) for one in value) + "}'"
    return f"'{value.total_seconds()} s'" if isinstance(value, timedelta) else f"'{value}'"


def nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scans(plan: Node) -> list[Node]:
    """Whatever reads the deliveries, by index or not; the target of a DELETE is no read, and a bitmap has its own."""
    others = ("ModifyTable", "Bitmap Heap Scan")
    return [
        node
        for node in nodes(plan)
        if str(node.get("Relation Name") or node.get("Index Name")).startswith("postlude_delivery")
        and node["Node Type"] not in others
    ]


def complaint(plan: Node, *indexes: str) -> str | None:
    """Why this is not a plan that reads the deliveries by these indexes, each of them, and sorts nothing."""
    used = [node.get("Index Name", node["Node Type"]) for node in scans(plan)]
    sorts = [node["Node Type"] for node in nodes(plan) if "Sort" in node["Node Type"]]
    if set(used) != set(indexes):
        return f"reads by {used}, not by {indexes}"
    return f"sorts: {sorts}" if sorts else None


def tracks(limit: int = LIMIT, floor: int = 0) -> dict[str, Any]:
    """A hot read of every lane from its floor."""
    return {
        "destination": "default",
        "lanes": ALL_LANES,
        "priorities": [1] * LANES,
        "floors": [floor] * LANES,
        "limit": limit,
    }


def due(excluding: Sequence[int] = ()) -> dict[str, Any]:
    return {
        "destination": "default",
        "lanes": ALL_LANES,
        "limit": LIMIT,
        "ahead": timedelta(),
        "excluding": list(excluding),
    }


def sent(worker: UUID, seqs: Sequence[int]) -> dict[str, Any]:
    return {
        "worker": worker,
        "destination": "default",
        "seqs": list(seqs),
        "lanes": ALL_LANES,
        "epochs": [1] * LANES,
    }


async def own_lanes(connection: asyncpg.Connection[asyncpg.Record]) -> UUID:
    """A worker that has every lane, as the fence wants to find it."""
    worker = uuid4()
    await connection.execute(
        "INSERT INTO postlude_worker (id, name, version, lease_until, destinations)"
        " VALUES ($1, 'w', '0', clock_timestamp() + interval '1 hour', '{default}')",
        worker,
    )
    await connection.execute(
        "INSERT INTO postlude_lane (destination, lane, owner, epoch)"
        " SELECT 'default', n, $1, 1 FROM generate_series(0, $2::int - 1) AS n",
        worker,
        LANES,
    )
    return worker


async def complaints(planner: Planner, worker: UUID, when: str) -> list[str]:
    """What is wrong with the plans of all the statements, in both modes."""
    keys = [f"key-{n}" for n in range(200)]
    blocked = {"destination": "default", "keys": keys, "seqs": [MILLION] * len(keys)}
    wanted = {
        "read_pending": (tracks(), ("postlude_delivery_hot", "postlude_delivery_block")),
        "read_due": (due(), ("postlude_delivery_due", "postlude_delivery_block")),
        "settle_sent": (sent(worker, range(1, BATCH + 1)), ("postlude_delivery_pkey",)),
        "freed": (blocked, ("postlude_delivery_block",)),
    }
    found = []
    for mode in MODES:
        for name, (values, indexes) in wanted.items():
            plan = await planner.plan(name, mode, values)
            if wrong := complaint(plan, *indexes):
                found.append(f"{when}, {mode}: {name} {wrong}\n{json.dumps(plan, indent=1)}")
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_million_pending_and_a_million_scheduled_rows_are_read_by_index(planner: Planner) -> None:
    worker = await own_lanes(planner.connection)
    found = []
    for turn, status in enumerate(("pending", "scheduled")):
        await planner.connection.execute(FILL, MILLION, LANES, status, turn)
        found += await complaints(planner, worker, f"{status}, before ANALYZE")
        await planner.connection.execute("ANALYZE postlude_delivery, postlude_lane, postlude_worker")
        found += await complaints(planner, worker, f"{status}, after ANALYZE")
    assert not found, "\n".join(found)

    for mode in MODES:
        hot = await planner.plan("read_pending", mode, tracks(), run=True)
        assert_bounded(hot, "postlude_delivery_hot", LIMIT)
        assert_bounded(await planner.plan("read_due", mode, due(), run=True), "postlude_delivery_due", LIMIT)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("limit", [1, LIMIT])
async def test_a_hot_read_visits_no_more_than_its_limit_behind_failed_heads(planner: Planner, limit: int) -> None:
    """100,000 entries wait for 64 heads: they are flagged, and cost what other rows cost."""
    keys = [key_in(lane) for lane in ALL_LANES]
    await planner.connection.execute(BLOCK, keys, ALL_LANES, FOLLOWERS // LANES)
    await planner.connection.execute(FAIL_HEADS, keys)
    await planner.connection.execute("ANALYZE postlude_delivery")
    heads = await planner.connection.fetchval("SELECT count(*) FROM postlude_delivery WHERE blocks")
    last = await planner.connection.fetchval("SELECT max(seq) FROM postlude_delivery")
    assert heads == LANES
    assert last > FOLLOWERS
    for mode in MODES:
        for floor in (0, last // 2, last):
            plan = await planner.plan("read_pending", mode, tracks(limit, floor), run=True)
            assert_bounded(plan, "postlude_delivery_hot", limit)
            assert plan["Actual Rows"] == (0 if floor == last else LANES * limit)


def assert_bounded(plan: Node, index: str, limit: int) -> None:
    """Count the rows the scan looked at, kept or not, and the probes for what blocks them."""
    (scan,) = [node for node in scans(plan) if node.get("Index Name") == index]
    (probe,) = [node for node in scans(plan) if node.get("Index Name") == "postlude_delivery_block"]
    assert scan["Node Type"] in ("Index Scan", "Index Only Scan")
    assert scan["Actual Loops"] == LANES
    assert scan["Actual Rows"] <= limit
    assert not scan.get("Rows Removed by Filter"), scan
    assert not scan.get("Rows Removed by Index Recheck"), scan
    assert probe["Actual Loops"] <= LANES * limit
    assert probe["Actual Rows"] <= 1
    assert not probe.get("Rows Removed by Filter"), probe


@pytest.mark.parametrize("days", [(3,), (3, 4)], ids=["one day", "two days"])
async def test_events_are_looked_for_in_the_partitions_of_the_batch(planner: Planner, days: tuple[int, ...]) -> None:
    start = datetime.now(UTC).replace(hour=12)
    dates = [start + timedelta(days=day) for day in days]
    ids = [uuid7(int(date.timestamp() * 1000) + n, n) for date in dates for n in range(BATCH // len(dates))]
    values = {"event_ids": ids, "low": min(ids), "high": max(ids)}
    plan = await planner.plan("events", "force_custom_plan", values)
    read = {node["Relation Name"] for node in nodes(plan) if "Relation Name" in node}
    assert read == {f"postlude_event_{date:%Y%m%d}" for date in dates}
