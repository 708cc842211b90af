"""An append through every kind of handle, against the insert that its user would write by hand.

`python3 dev bench append` runs it on a durable server of its own; README.md says what is measured and how.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `python benchmarks/append.py` works too

from benchmarks.handles.django import HANDLES as DJANGO
from benchmarks.handles.drivers import HANDLES as DRIVERS
from benchmarks.handles.sqlalchemy import HANDLES as SQLALCHEMY
from benchmarks.handles.sqlite import HANDLES as SQLITE
from benchmarks.measuring.command import Bench, Chosen, main
from benchmarks.measuring.report import Comparison
from benchmarks.scenarios.joining import joining

METERED = "asyncpg"
"""The costs in the report are those of this one."""


def comparisons(_events: int) -> Mapping[str, Chosen]:
    """What there is to measure, by the name of the handle."""
    found: dict[str, Chosen] = {}
    for handle in (*DRIVERS, *SQLALCHEMY, *DJANGO, *SQLITE):
        ours = f"append[{handle.name}]"
        comparison = Comparison(f"{ours}/raw", ours, f"{ours} raw", "tx/s", ">=", handle.aim)
        found[handle.name] = (joining(handle, metered=handle.name == METERED), comparison)
    return found


BENCH = Bench(
    name="append",
    about=__doc__.partition("\n")[0],
    comparisons=comparisons,
    events=600,
    events_are="transactions of each side in a repeat",
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
