"""Sagas of three steps, 16 at once, against DBOS and against a loop of transactions written by hand.

`python3 dev bench saga` runs it on a durable server of its own; README.md says what is measured and how.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `python benchmarks/saga.py` works too

from benchmarks.measuring.command import Bench, Chosen, main
from benchmarks.measuring.report import Comparison
from benchmarks.scenarios.sagas import against_dbos, against_handwritten

RATE = "sagas/s"


def comparisons(_events: int) -> Mapping[str, Chosen]:
    """What there is to measure, by the name of the other side."""
    return {
        "dbos": (against_dbos, Comparison("saga/dbos", "saga beside dbos", "dbos", RATE, ">=", 3)),
        "handwritten": (against_handwritten, Comparison("saga/handwritten", "saga", "handwritten", RATE, ">=", 0.5)),
    }


BENCH = Bench(
    name="saga",
    about=__doc__.partition("\n")[0],
    comparisons=comparisons,
    events=1500,
    events_are="sagas of each side in a repeat",
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
