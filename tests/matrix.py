"""Which handle does what on which database: declared by the suite, filled by what ran, kept in the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

COLUMNS = ("append", "def handler", "async def handler", "app.sync")
Row = tuple[str, str, str]
"""Handle, driver, database."""
APPEND_ONLY = "ctx.append only"
REFUSED = "refused"
AS_SESSION = "as its session"
PROPERTY = "adapter"


def row_of(kind: Any) -> Row:
    return kind.handle, kind.driver, kind.database


def ran(request: pytest.FixtureRequest, kind: Any, column: str, word: str = "yes") -> None:
    """Say what the test is about to show; only those that pass are counted."""
    request.node.user_properties.append((PROPERTY, (*row_of(kind), column, word)))


def declared() -> dict[Row, dict[str, str]]:
    """What a run of the whole suite shows."""
    from tests.callers import KINDS
    from tests.factories import SOURCES

    given = {row_of(source): source for source in SOURCES}
    table = {}
    for kind in KINDS:
        is_async = kind.adapter().is_async
        cells = dict.fromkeys(COLUMNS, "yes")
        if is_async:
            cells["app.sync"] = REFUSED
        if (source := given.get(row_of(kind))) is None:
            cells |= {"def handler": AS_SESSION, "async def handler": AS_SESSION}
        elif source.is_async:
            cells["def handler"] = APPEND_ONLY
        elif kind.handle.startswith("Django"):
            cells["async def handler"] = REFUSED
        table[row_of(kind)] = cells
    return table


def lines(passed: Iterable[tuple[str, ...]]) -> list[str]:
    """For the end of a run."""
    found: dict[Row, dict[str, str]] = {}
    for handle, driver, database, column, word in passed:
        found.setdefault((handle, driver, database), {})[column] = word
    width = (33, 10, 9, *(18,) * len(COLUMNS))
    rows: list[tuple[str, ...]] = [("handle", "driver", "database", *COLUMNS)]
    rows += [(*row, *(cells.get(column, "-") for column in COLUMNS)) for row, cells in found.items()]
    return ["".join(cell.ljust(size) for cell, size in zip(row, width, strict=True)).rstrip() for row in rows]


def missing(passed: Iterable[tuple[str, ...]], table: Mapping[Row, Mapping[str, str]]) -> list[str]:
    """Cells that are declared, and that no test has shown."""
    shown = set(passed)
    return [
        f"{' '.join(row)}: {column}"
        for row, cells in table.items()
        for column, word in cells.items()
        if word != AS_SESSION and (*row, column, word) not in shown
    ]
