"""The way from a table to the subject: the one there is along foreign keys, or the one that was given."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from postlude.core.data_map import Declaration, ForeignKey, Path, Problem, shown

MAX_SHOWN = 4


def paths_of(declaration: Declaration) -> tuple[dict[str, Path], list[Problem]]:
    """The path of every mapped table that has exactly one, and what is wrong with the others."""
    found: dict[str, Path] = {declaration.anchor[0]: ()}
    given, problems = _given(declaration)
    near = reachable(declaration)
    for name in declaration.tables:
        if name == declaration.anchor[0] or any(problem.where == name for problem in problems):
            continue
        candidates = list(islice(_walk(declaration, given, near, name), MAX_SHOWN))
        if len(candidates) == 1:
            found[name] = candidates[0]
        else:
            problems.append(_without(name, declaration) if not candidates else _ambiguous(name, candidates))
    return found, problems


def reachable(declaration: Declaration) -> frozenset[str]:
    """Tables from which foreign keys lead to the subject, the subject's own included."""
    near = {declaration.anchor[0]}
    waiting = [declaration.anchor[0]]
    while waiting:
        for key in declaration.references_to(waiting.pop()):
            if key.table not in near:
                near.add(key.table)
                waiting.append(key.table)
    return frozenset(near)


def _walk(
    declaration: Declaration, given: dict[str, Path], near: frozenset[str], table: str, seen: tuple[str, ...] = ()
) -> Iterator[Path]:
    """Every path that visits no table twice. Where a table's own path was given, it counts for tables behind it too."""
    if table == declaration.anchor[0]:
        yield ()
        return
    seen = (*seen, table)
    starts: list[Path] = (
        [given[table]] if table in given else [(key,) for key in declaration.schema[table].foreign_keys]
    )
    for start in starts:
        visited = (*seen, *(hop.target for hop in start[:-1]))
        end = start[-1].target
        if end not in visited and end in near:
            yield from ((*start, *rest) for rest in _walk(declaration, given, near, end, visited))


def _given(declaration: Declaration) -> tuple[dict[str, Path], list[Problem]]:
    given: dict[str, Path] = {}
    problems: list[Problem] = []
    for name, table in declaration.tables.items():
        if not table.path:
            continue
        if name == declaration.anchor[0]:
            problems.append(Problem(name, "it holds the subjects themselves and needs no path", "Leave path= out."))
            continue
        hops = _hops(declaration, name, table.path)
        if isinstance(hops, Problem):
            problems.append(hops)
        else:
            given[name] = hops
    return given, problems


def _hops(declaration: Declaration, name: str, columns: tuple[tuple[str, str], ...]) -> Path | Problem:
    hops: list[ForeignKey] = []
    at = name
    for place, (table, column) in enumerate(columns):
        if table != at:
            what = f"its path goes on with {table}.{column}, but stands at {at}"
            return Problem(name, what, "Name one column of each table on the way, this table's own first.")
        following = columns[place + 1][0] if place + 1 < len(columns) else None
        hop = _hop(declaration, table, column, following)
        if isinstance(hop, str):
            return Problem(name, hop, "Name the columns of foreign keys, one for each table on the way.")
        hops.append(hop)
        at = hop.target
    return tuple(hops)


def _hop(declaration: Declaration, table: str, column: str, following: str | None) -> ForeignKey | str:
    known = declaration.schema.get(table)
    if known is None or known.column(column) is None:
        return f"there is no column {table}.{column}"
    keys = [key for key in known.foreign_keys if column in key.columns and following in (None, key.target)]
    if not keys and following is None:
        # Nothing but the id of the subject could be meant.
        return ForeignKey(table, (column,), declaration.anchor[0], (declaration.anchor[1],), soft=True)
    if len(keys) != 1:
        return f"{table}.{column} belongs to {len(keys)} foreign keys that lead there"
    return keys[0]


def _without(name: str, declaration: Declaration) -> Problem:
    hint = (
        f"Give path=, a column that leads to {declaration.anchor[0]} or holds the subject's id; or leave the table out."
    )
    return Problem(name, "no foreign keys lead from it to the subject", hint)


def _ambiguous(name: str, candidates: list[Path]) -> Problem:
    ways = "; ".join(shown(path) for path in candidates)
    columns = " or ".join(dict.fromkeys(str(path[0]) for path in candidates))
    return Problem(name, f"several paths lead to the subject ({ways})", f"Say which one: path= with {columns}.")
