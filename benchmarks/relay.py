"""The engine against a plain table: draining, appending, reading with much open, draining past blocked keys.

`python3 dev bench relay` runs it on a durable server of its own; README.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `python benchmarks/relay.py` works too

from benchmarks.measuring.costs import Costs
from benchmarks.measuring.database import connected, fresh_database
from benchmarks.measuring.engine import engine
from benchmarks.measuring.machine import identity, machine
from benchmarks.measuring.report import Compared, Comparison, Report
from benchmarks.measuring.turns import say
from benchmarks.scenarios.appending import append
from benchmarks.scenarios.draining import blocked, relay
from benchmarks.scenarios.reading import read, sizes
from benchmarks.scenarios.setup import Params, Scenario, Setup

SERVER = "POSTLUDE_BENCH_POSTGRES"
RATE = "events/s"
LEAST_BYTES, LEAST_EVENTS = 100, 100


def comparisons(events: int) -> Mapping[str, tuple[Scenario, Comparison]]:
    """What there is to measure, by its short name."""
    many, few = (f"read@{_short(rows)}" for rows in sizes(events))
    return {
        "relay": (relay, Comparison("relay/raw", "relay", "relay raw", RATE, ">=", 0.25)),
        "append": (append, Comparison("append/raw", "append", "append raw", "tx/s", ">=", 0.8)),
        "read": (read, Comparison(f"{many}/{few}", many, few, "ms", "<=", 1.2)),
        "blocked": (blocked, Comparison("blocked/unblocked", "blocked", "unblocked", RATE, ">=", 0.8)),
    }


async def measure(server: str, params: Params, chosen: Sequence[tuple[Scenario, Comparison]]) -> Report:
    """Each scenario in a database of its own."""
    results: list[Compared] = []
    costs: dict[str, float] = {}
    for scenario, comparison in chosen:
        async with fresh_database(server) as url, connected(url) as connection:
            async with engine(url, batch=params.batch) as app:
                await app.db.upgrade()
            setup = Setup(url=url, connection=connection, costs=Costs(url, connection), params=params)
            results.append(await _compare(scenario, comparison, setup))
            costs |= setup.costs.per_event()
    return Report(
        bench="relay",
        machine=await machine(server),
        params=msgspec.structs.asdict(params),
        results=results,
        costs=costs,
        **identity(),
    )


async def _compare(scenario: Scenario, comparison: Comparison, setup: Setup) -> Compared:
    pairs = []
    async for ours, theirs in scenario(setup):
        pairs.append((ours, theirs))
        count = f"{len(pairs)}/{setup.params.repeats}"
        say(f"{comparison.name} {count}: {ours:,.4g} against {theirs:,.4g} {comparison.unit} = {ours / theirs:.3f}")
    return Compared(comparison, pairs)


def _short(rows: int) -> str:
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if rows >= unit and rows % unit == 0:
            return f"{rows // unit}{name}"
    return str(rows)


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev bench relay", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit 1 when an aim is missed")
    parser.add_argument("--events", type=int, default=100_000, help="size of the backlog")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=500, help="size of a payload")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--only", metavar="NAME", help="one of relay, append, read, blocked, or the name of a ratio")
    options = parser.parse_args(given)
    if options.events < LEAST_EVENTS or options.bytes < LEAST_BYTES or min(options.batch, options.repeats) < 1:
        parser.error(f"at least {LEAST_EVENTS} events of {LEAST_BYTES} bytes, a batch and a repeat of 1")
    named = comparisons(options.events)
    wanted = (options.only,) if options.only else tuple(named)
    options.chosen = [pair for name, pair in named.items() if name in wanted or pair[1].name in wanted]
    if not options.chosen:
        parser.error(f"there is no {options.only!r}, but {', '.join(named)}")
    return options


def main(given: Sequence[str] | None = None) -> int:
    options = _arguments(given)
    server = os.environ.get(SERVER)
    if not server:
        say(f"run it with `python3 dev bench relay`, or name a PostgreSQL server in {SERVER}")
        return 2
    params = Params(events=options.events, bytes=options.bytes, batch=options.batch, repeats=options.repeats)
    report = asyncio.run(measure(server, params, options.chosen))
    print(report.json() if options.json else report.table())
    return 1 if options.strict and not report.is_met else 0


if __name__ == "__main__":
    sys.exit(main())
