"""What every benchmark's command shares: its options, a database for each scenario, the report."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from benchmarks.measuring.costs import Costs
from benchmarks.measuring.database import connected, fresh_database
from benchmarks.measuring.engine import engine
from benchmarks.measuring.machine import identity, machine
from benchmarks.measuring.report import Compared, Comparison, Report
from benchmarks.measuring.turns import say
from benchmarks.scenarios.setup import Params, Scenario, Setup

SERVER = "POSTLUDE_BENCH_POSTGRES"
LEAST_BYTES, LEAST_EVENTS = 100, 100
Chosen = tuple[Scenario, Comparison]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark by its name for `dev bench`, with what there is to measure by short names."""

    name: str
    about: str
    comparisons: Callable[[int], Mapping[str, Chosen]]
    """For so many events."""
    events: int
    events_are: str
    repeats: int = 5


def main(bench: Bench, given: Sequence[str] | None = None) -> int:
    """Measure and print. 0 is fine, 1 a missed aim under --strict, 2 wrong usage."""
    options = _arguments(bench, given)
    server = os.environ.get(SERVER)
    if not server:
        say(f"run it with `python3 dev bench {bench.name}`, or name a PostgreSQL server in {SERVER}")
        return 2
    params = Params(events=options.events, bytes=options.bytes, batch=options.batch, repeats=options.repeats)
    report = asyncio.run(_measure(bench, server, params, options.chosen))
    print(report.json() if options.json else report.table())
    return 1 if options.strict and not report.is_met else 0


async def _measure(bench: Bench, server: str, params: Params, chosen: Sequence[Chosen]) -> Report:
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
        bench=bench.name,
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


def _arguments(bench: Bench, given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"dev bench {bench.name}", description=bench.about)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit 1 when an aim is missed")
    parser.add_argument("--events", type=int, default=bench.events, help=bench.events_are)
    parser.add_argument("--repeats", type=int, default=bench.repeats)
    parser.add_argument("--bytes", type=int, default=500, help="size of a payload")
    parser.add_argument("--batch", type=int, default=500, help="of a worker")
    named = bench.comparisons(bench.events)
    parser.add_argument(
        "--only", metavar="NAME[,NAME...]", help=f"some of {', '.join(named)}, or of the names of ratios"
    )
    options = parser.parse_args(given)
    if options.events < LEAST_EVENTS or options.bytes < LEAST_BYTES or min(options.batch, options.repeats) < 1:
        parser.error(f"at least {LEAST_EVENTS} events of {LEAST_BYTES} bytes, a batch and a repeat of 1")
    named = bench.comparisons(options.events)
    wanted = set(options.only.split(",")) if options.only else set(named)
    if unknown := wanted - {name for short, (_, one) in named.items() for name in (short, one.name)}:
        parser.error(f"there is no {', '.join(map(repr, sorted(unknown)))}, but {', '.join(named)}")
    options.chosen = [pair for name, pair in named.items() if wanted & {name, pair[1].name}]
    return options
