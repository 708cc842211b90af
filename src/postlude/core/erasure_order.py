"""Deleting rows that others refer to: which rows go along, which references are let go first, and in what order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from postlude.core.data_map import Declaration, ForeignKey, Path, Problem


class Rows(msgspec.Struct, frozen=True):
    """The rows of the subject by table, and the tables whose rows are deleted."""

    paths: Mapping[str, tuple[Path, ...]]
    deleted: frozenset[str]


class Detached(msgspec.Struct, frozen=True):
    """A reference into deleted rows that is set to NULL, in the columns that can be."""

    key: ForeignKey
    columns: tuple[str, ...]


def removal(declaration: Declaration, paths: Mapping[str, Path]) -> tuple[Rows, list[Detached], list[Problem]]:
    rows = _with_cascades(declaration, paths)
    detached: list[Detached] = []
    problems: list[Problem] = []
    for table in sorted(rows.deleted):
        for key in declaration.references_to(table):
            if _is_covered(rows, key):
                continue
            columns = declaration.detachable(key)
            if columns:
                detached.append(Detached(key, columns))
            else:
                problems.append(_stuck(declaration, key))
    return rows, detached, problems


def _with_cascades(declaration: Declaration, paths: Mapping[str, Path]) -> Rows:
    """Where the database would delete along (ON DELETE CASCADE), the plan does so itself, in rows that the map does not
    keep: then the order is right, the rows are counted, and SQLite without enforcement does the same."""
    found: dict[str, list[Path]] = {table: [path] for table, path in paths.items()}
    deleted = {table for table in paths if declaration.is_deleted(table)}
    waiting = deque(sorted(deleted))
    while waiting:
        table = waiting.popleft()
        for key in declaration.references_to(table):
            if key.on_delete != "cascade" or declaration.is_kept(key.table):
                continue
            longer = [(key, *path) for path in found[table] if key.table not in _tables(path)]
            fresh = [path for path in longer if path not in found.get(key.table, [])]
            if fresh and key.table != table:
                found.setdefault(key.table, []).extend(fresh)
                deleted.add(key.table)
                waiting.append(key.table)
    return Rows({table: tuple(ways) for table, ways in found.items()}, frozenset(deleted))


def _tables(path: Path) -> set[str]:
    return {hop.target for hop in path}


def _is_covered(rows: Rows, key: ForeignKey) -> bool:
    """Is every row that refers to a deleted one deleted itself?"""
    ways = rows.paths.get(key.table, ())
    return key.table in rows.deleted and all((key, *path) in ways for path in rows.paths[key.target])


def in_order(rows: Rows, detached: list[Detached]) -> list[str | Detached] | Problem:
    """Nobody loses the rows by which its own are found: a table is deleted, and a reference let go, only after every
    step that looks there. Deletes come before letting go where both could: fewer rows are written."""
    nodes: list[str | Detached] = [*sorted(rows.paths, key=lambda table: table in rows.deleted), *detached]
    done: list[str | Detached] = []
    while nodes:
        ready = next(
            (one for one in nodes if not any(_needs(rows, other, one) for other in nodes if other != one)), None
        )
        if ready is None:
            return _waiting(nodes)
        nodes.remove(ready)
        done.append(ready)
    return done


def _needs(rows: Rows, reader: str | Detached, writer: str | Detached) -> bool:
    """Would the writer take away what the reader finds its rows by?"""
    if isinstance(reader, Detached):
        ways, tables = rows.paths[reader.key.target], {reader.key.target}
    else:
        ways, tables = rows.paths[reader], set()
    hops = [hop for path in ways for hop in path]
    if isinstance(writer, Detached):
        key = writer.key
        return any(hop.table == key.table and set(hop.columns) & set(writer.columns) for hop in hops)
    return writer in rows.deleted and writer in tables | {hop.target for hop in hops}


def _waiting(nodes: list[str | Detached]) -> Problem:
    names = sorted({node.key.table if isinstance(node, Detached) else node for node in nodes})
    return Problem(
        ", ".join(names),
        "each is found through rows that another one deletes first",
        "Give paths that do not run through each other in a circle.",
    )


def _stuck(declaration: Declaration, key: ForeignKey) -> Problem:
    what = f"it is NOT NULL and refers to {key.target}, whose rows are deleted"
    if declaration.is_kept(key.table):
        also = " (ON DELETE CASCADE would delete what the map keeps)" if key.on_delete == "cascade" else ""
        hint = f"Delete the rows of {key.table} too, or anonymise those of {key.target}; or make the column nullable."
        return Problem(str(key), f"{what}, while the map keeps its own rows{also}", hint)
    if key.table in declaration.tables:
        what += ", while rows of other subjects may refer to them"
    ways = "nullable" if key.on_delete == "cascade" else "nullable or ON DELETE CASCADE"
    hint = f"Make it {ways}; or anonymise the rows of {key.target} instead."
    if key.table not in declaration.tables:
        hint = f"Map {key.table} with Delete(), or m{hint[1:]}"
    return Problem(str(key), what, hint)
