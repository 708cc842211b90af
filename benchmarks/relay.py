"""The engine against a plain table: draining, appending, reading with much open, draining past blocked keys.

`python3 dev bench relay` runs it on a durable server of its own; README.md says what is measured and how.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `python benchmarks/relay.py` works too

from benchmarks.measuring.command import Bench, Chosen, main
from benchmarks.measuring.report import Comparison
from benchmarks.scenarios.appending import append
from benchmarks.scenarios.draining import blocked, relay
from benchmarks.scenarios.reading import read, sizes

RATE = "events/s"


def comparisons(events: int) -> Mapping[str, Chosen]:
    """What there is to measure, by its short name."""
    many, few = (f"read@{_short(rows)}" for rows in sizes(events))
    return {
        "relay": (relay, Comparison("relay/raw", "relay", "relay raw", RATE, ">=", 0.25)),
        "append": (append, Comparison("append/raw", "append", "append raw", "tx/s", ">=", 0.8)),
        "read": (read, Comparison(f"{many}/{few}", many, few, "ms", "<=", 1.2)),
        "blocked": (blocked, Comparison("blocked/unblocked", "blocked", "unblocked", RATE, ">=", 0.8)),
    }


def _short(rows: int) -> str:
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if rows >= unit and rows % unit == 0:
            return f"{rows // unit}{name}"
    return str(rows)


BENCH = Bench(
    name="relay",
    about=__doc__.partition("\n")[0],
    comparisons=comparisons,
    events=100_000,
    events_are="size of the backlog",
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
