"""The report of a benchmark: one JSON object for machines, a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import ge, le
from statistics import median
from typing import Any, Literal

import msgspec

_MEETS: Mapping[str, Callable[[float, float], bool]] = {">=": ge, "<=": le}


class Comparison(msgspec.Struct, frozen=True):
    """Two series of one unit, what their ratio is called, and where it should be. Without a bar it is only told."""

    name: str
    ours: str
    theirs: str
    unit: str
    op: Literal[">=", "<="] = ">="
    bar: float | None = None


class Compared(msgspec.Struct, frozen=True):
    """A comparison and what was measured, one pair for each repeat."""

    comparison: Comparison
    pairs: Sequence[tuple[float, float]]

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in self.pairs]

    @property
    def value(self) -> float:
        return _rounded(median(self.ratios))

    @property
    def is_met(self) -> bool:
        bar = self.comparison.bar
        return bar is None or _MEETS[self.comparison.op](self.value, bar)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    bench: str
    version: str
    commit: str
    time: str
    machine: Mapping[str, Any]
    params: Mapping[str, Any]
    results: Sequence[Compared]
    costs: Mapping[str, float]

    @property
    def is_met(self) -> bool:
        return all(result.is_met for result in self.results)

    def json(self) -> str:
        head = {name: getattr(self, name) for name in ("bench", "version", "commit", "time", "machine", "params")}
        series = {name: values for result in self.results for name, values in _series(result)}
        body = {
            "series": series,
            "ratios": {result.comparison.name: _ratio(result) for result in self.results},
            "costs": {name: _rounded(value) for name, value in self.costs.items()},
            "aims": [_aim(result) for result in self.results if result.comparison.bar is not None],
        }
        return msgspec.json.encode(head | body).decode()

    def table(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.bench} {self.version} ({self.commit}) on {self.machine['database']}, {self.time}"
        yield ", ".join(f"{name} {value}" for name, value in self.params.items())
        wide = 2 + max(len(name) for result in self.results for name, _ in _series(result))
        yield f"\n{'series':<{wide}}{'unit':<12}{'median':>12}{'least':>12}{'most':>12}"
        for name, row in (row for result in self.results for row in _series(result)):
            low, high = min(row["values"]), max(row["values"])
            yield f"{name:<{wide}}{row['unit']:<12}{_number(row['median'])}{_number(low)}{_number(high)}"
        wide = 2 + max(len(result.comparison.name) for result in self.results)
        yield f"\n{'ratio':<{wide}}{'median':>8}   aim"
        for result in self.results:
            yield f"{result.comparison.name:<{wide}}{result.value:>8.3f}   {_verdict(result)}"
        yield ""
        wide = 2 + max((len(name) for name in self.costs), default=0)
        yield from (f"{name:<{wide}}{_number(value)}" for name, value in self.costs.items())


def _series(result: Compared) -> Iterator[tuple[str, dict[str, Any]]]:
    names = (result.comparison.ours, result.comparison.theirs)
    for name, values in zip(names, zip(*result.pairs, strict=True), strict=True):
        kept = [_rounded(value) for value in values]
        yield name, {"unit": result.comparison.unit, "values": kept, "median": _rounded(median(values))}


def _ratio(result: Compared) -> dict[str, Any]:
    return {"per_repeat": [_rounded(ratio) for ratio in result.ratios], "median": result.value}


def _verdict(result: Compared) -> str:
    aim = result.comparison
    if aim.bar is None:
        return "none"
    return f"{aim.op} {aim.bar:g}  {'met' if result.is_met else 'MISSED'}"


def _aim(result: Compared) -> dict[str, Any]:
    aim = result.comparison
    return {"name": aim.name, "op": aim.op, "bar": aim.bar, "value": result.value, "met": result.is_met}


def _rounded(value: float) -> float:
    """Four digits are more than a benchmark knows."""
    return float(f"{value:.4g}")


def _number(value: float) -> str:
    return f"{value:>12,.0f}" if value >= 100 else f"{value:>12.4g}"
