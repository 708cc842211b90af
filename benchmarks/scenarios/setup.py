"""What every scenario is given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from benchmarks.measuring.costs import Costs
from benchmarks.measuring.database import Connection

Pair = tuple[float, float]


class Params(msgspec.Struct, frozen=True, kw_only=True):
    events: int
    bytes: int
    batch: int
    repeats: int


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A database of its own, a connection to arrange things with, and a meter."""

    url: str
    connection: Connection
    costs: Costs
    params: Params

    @property
    def repeats(self) -> range:
        return range(self.params.repeats)


Scenario = Callable[[Setup], AsyncIterator[Pair]]


def expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads like a sentence
    """A side that did not do its work has no time."""
    if not holds:
        raise RuntimeError(otherwise)
