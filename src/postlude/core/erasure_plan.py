"""What an erasure does to the tables of the map, step by step. A plan is the same for every subject."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from postlude.core.data_checks import column_problems
from postlude.core.data_map import Anonymise, Declaration, ForeignKey, MappedColumn, Path, Problem, Retain, shown
from postlude.core.data_paths import paths_of
from postlude.core.erasure_order import Detached, Rows, in_order, removal
from postlude.errors import ConfigurationError


class DeleteRows(msgspec.Struct, frozen=True):
    """Rows of a table that any of the paths finds."""

    table: str
    paths: tuple[Path, ...]
    own: Path | None
    """What the map says; the others are there because of ON DELETE CASCADE."""

    def __str__(self) -> str:
        ways = (shown(path) + ("" if path == self.own else " (ON DELETE CASCADE)") for path in self.paths)
        return f"delete rows of {self.table}: {', and '.join(ways)}"


class UpdateColumns(msgspec.Struct, frozen=True):
    table: str
    paths: tuple[Path, ...]
    values: tuple[tuple[str, Anonymise], ...]
    retained: tuple[MappedColumn, ...] = ()

    def __str__(self) -> str:
        names = ", ".join(name for name, _ in self.values)
        return f"anonymise {names} of {self.table}: {shown(self.paths[0])}{_and_retain(self.retained)}"


class KeepRows(msgspec.Struct, frozen=True):
    """Nothing is done; the rows are counted, because they stay."""

    table: str
    paths: tuple[Path, ...]
    retained: tuple[MappedColumn, ...]

    def __str__(self) -> str:
        return f"keep rows of {self.table}: {shown(self.paths[0])}{_and_retain(self.retained)}"


class DetachRows(msgspec.Struct, frozen=True):
    """Rows that stay, or go later, let go of rows that are deleted. `paths` are those of the table referred to."""

    table: str
    columns: tuple[str, ...]
    key: ForeignKey
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        names = ", ".join(self.columns)
        return f"set {names} of {self.table} to NULL: where it refers to a row of {self.key.target} that is deleted"


Step = DeleteRows | UpdateColumns | KeepRows | DetachRows


class Plan(msgspec.Struct, frozen=True):
    anchor: tuple[str, str]
    steps: tuple[Step, ...]
    paths: dict[str, tuple[Path, ...]]
    """Of every table in which the subject has rows, by name."""

    @property
    def deleted(self) -> frozenset[str]:
        return frozenset(step.table for step in self.steps if isinstance(step, DeleteRows))

    def __str__(self) -> str:
        lock = f"lock the subject: {self.anchor[0]} by {self.anchor[1]}"
        return "\n".join(f"{number}. {line}" for number, line in enumerate([lock, *map(str, self.steps)], start=1))


def plan_erasure(declaration: Declaration) -> Plan:
    """Refuses what cannot work, all of it at once."""
    plan, problems = _planned(declaration)
    if plan is None:
        raise refusal(problems)
    return plan


def plan_of(declaration: Declaration) -> Plan | None:
    return _planned(declaration)[0]


def problems_of(declaration: Declaration) -> list[Problem]:
    return _planned(declaration)[1]


def refusal(problems: list[Problem]) -> ConfigurationError:
    lines = "".join(f"\n  - {problem}" for problem in problems)
    return ConfigurationError(
        f"the data map cannot work, for {len(problems)} reason{'s' if len(problems) > 1 else ''}:{lines}",
        hint="Correct what is named above; nothing was changed.",
    )


def _planned(declaration: Declaration) -> tuple[Plan | None, list[Problem]]:
    known = set(declaration.schema)
    if not known.issuperset({declaration.anchor[0], *declaration.tables}):
        return None, list(column_problems(declaration, {}))
    paths, problems = paths_of(declaration)
    problems += column_problems(declaration, paths)
    if problems:
        return None, problems
    rows, detached, problems = removal(declaration, paths)
    if problems:
        return None, problems
    ordered = in_order(rows, detached)
    if isinstance(ordered, Problem):
        return None, [ordered]
    steps = tuple(step for node in ordered for step in _steps(declaration, rows, node))
    return Plan(declaration.anchor, steps, dict(rows.paths)), []


def _steps(declaration: Declaration, rows: Rows, node: str | Detached) -> Iterator[Step]:
    if isinstance(node, Detached):
        yield DetachRows(node.key.table, node.columns, node.key, rows.paths[node.key.target])
        return
    paths = rows.paths[node]
    if node in rows.deleted:
        yield DeleteRows(node, paths, paths[0] if declaration.is_deleted(node) else None)
        return
    mapped = list(declaration.columns_of(node))
    retained = tuple(one for one in mapped if isinstance(one.strategy, Retain))
    values = tuple((one.name, _how(one)) for one in mapped if one not in retained)
    if values:
        yield UpdateColumns(node, paths, values, retained)
    elif retained:
        yield KeepRows(node, paths, retained)


def _how(column: MappedColumn) -> Anonymise:
    return column.strategy if isinstance(column.strategy, Anonymise) else Anonymise()


def _and_retain(retained: tuple[MappedColumn, ...]) -> str:
    reasons = (f"{one.name} ({one.strategy.basis})" for one in retained if isinstance(one.strategy, Retain))
    return f"; retain {', '.join(reasons)}" if retained else ""
