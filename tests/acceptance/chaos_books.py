"""The books after a storm: what was appended, against what left a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from postlude import Postlude
from tests.acceptance.chaos_app import Trace
from tests.acceptance.chaos_load import Appended


def traces(folder: Path, name: str) -> list[Trace]:
    """Of all processes, dead ones too, by time. A process that was killed may have left half a line: not a delivery."""
    lines = [
        line
        for path in folder.glob(f"{name}-*.trace")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]
    return sorted((msgspec.json.decode(line, type=Trace) for line in lines), key=lambda trace: trace.at)


async def effects(app: Postlude) -> list[Trace]:
    """What handlers wrote into the database, in the order of its own counter."""
    sql = "SELECT position, event_id, key, n FROM effect ORDER BY position"
    async with app.transaction() as tx:
        rows: list[Any] = tx.execute(sql).fetchall() if app.store.dialect == "sqlite" else await tx.fetch(sql)
    return [Trace(row[0], UUID(str(row[1])), row[2], row[3]) for row in rows]


async def receipts(app: Postlude) -> Counter[str]:
    """Settled deliveries by destination."""
    sql = "SELECT destination, count(*) FROM postlude_receipt GROUP BY destination"
    async with app.transaction() as tx:
        rows: list[Any] = tx.execute(sql).fetchall() if app.store.dialect == "sqlite" else await tx.fetch(sql)
    return Counter({row[0]: row[1] for row in rows})


def assert_nothing_lost(seen: list[Trace], appended: Appended) -> None:
    """Every event that was committed arrived as it was, and no other did."""
    arrived = {trace.event_id: (trace.key, trace.n) for trace in seen}
    missing = [what for event_id, what in appended.items() if event_id not in arrived]
    assert not missing, f"{len(missing)} of {len(appended)} were lost, such as {sorted(missing)[:10]}"
    foreign = [what for event_id, what in arrived.items() if event_id not in appended]
    assert not foreign, f"{len(foreign)} were never committed, such as {sorted(foreign)[:10]}"
    assert arrived == appended


def assert_once(seen: list[Trace]) -> None:
    often = Counter(trace.event_id for trace in seen)
    doubles = [(trace.key, trace.n) for trace in firsts(seen) if often[trace.event_id] > 1]
    assert not doubles, f"{len(doubles)} happened more than once, such as {doubles[:10]}"


def assert_in_order(seen: list[Trace]) -> None:
    """The first deliveries of each key, by time, count upwards."""
    latest: dict[str, Trace] = {}
    swapped = []
    for trace in firsts(seen):
        before = latest.get(trace.key)
        if before is not None and before.n >= trace.n:
            swapped.append(f"{trace.key}: {trace.n} came {trace.at - before.at} after {before.n}")
        latest[trace.key] = trace
    assert not swapped, f"{len(swapped)} first deliveries are out of order, such as {swapped[:10]}"


def firsts(seen: Iterable[Trace]) -> list[Trace]:
    """Only the first delivery of each event."""
    first: dict[UUID, Trace] = {}
    for trace in seen:
        first.setdefault(trace.event_id, trace)
    return list(first.values())
