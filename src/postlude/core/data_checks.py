"""What a declaration says of single columns and cannot mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from postlude.core.data_map import Anonymise, Declaration, Delete, MappedColumn, Path, Problem, Retain, Table


def column_problems(declaration: Declaration, paths: dict[str, Path]) -> Iterator[Problem]:
    yield from _unknown(declaration)
    for name, count in Counter(str(one) for one in declaration.columns).items():
        if count > 1:
            yield Problem(name, f"it is declared {count} times", "Declare it once.")
    for one in declaration.columns:
        table = declaration.schema.get(one.table)
        if table is not None and table.column(one.name) is not None:
            if not one.category.strip():
                yield Problem(str(one), "it has no category", 'Name one, such as "email" or "name".')
            yield from _strategy(declaration, one, paths)
    for name, mapped in declaration.tables.items():
        if not mapped.is_deleted and name != declaration.anchor[0] and not any(declaration.columns_of(name)):
            yield Problem(name, "nothing is said of it but its name", "Give Delete(), or declare its personal columns.")


def _unknown(declaration: Declaration) -> Iterator[Problem]:
    anchor, column = declaration.anchor
    if anchor not in declaration.schema or declaration.schema[anchor].column(column) is None:
        yield Problem(
            f"{anchor}.{column}", "there is no such column", "The anchor is the column with the subjects' ids."
        )
    else:
        yield from _ambiguous(declaration.schema[anchor], column)
    for name in declaration.tables:
        if name not in declaration.schema:
            yield Problem(name, "there is no such table", "Give the model or the Table itself.")
    for one in declaration.columns:
        table = declaration.schema.get(one.table)
        if table is None or table.column(one.name) is None:
            known = ", ".join(column.name for column in table.columns) if table else ""
            yield Problem(
                str(one), "there is no such column", f"The table has: {known}." if known else "Check its name."
            )


def _ambiguous(table: Table, anchor: str) -> Iterator[Problem]:
    """Half of a key names several people: one request would erase all of them."""
    column = table.column(anchor)
    keys = [one.name for one in table.columns if one.primary_key]
    if column is not None and column.primary_key and not column.unique and len(keys) > 1:
        yield Problem(
            f"{table.name}.{anchor}",
            f"it is only a part of the primary key ({', '.join(keys)}) and may name several subjects",
            "Give a column that names one subject by itself, or declare this one unique.",
        )


def _strategy(declaration: Declaration, one: MappedColumn, paths: dict[str, Path]) -> Iterator[Problem]:
    strategy = one.strategy
    if isinstance(strategy, Delete):
        hint = "Say it of the table, data.table(..., Delete()); or Anonymise() the column."
        yield Problem(str(one), "a column cannot be deleted", hint)
    elif declaration.is_deleted(one.table):
        if isinstance(strategy, Retain):
            yield Problem(
                str(one),
                "it is retained in a row that is deleted",
                "Leave Delete() out, and anonymise what else is there.",
            )
        elif strategy is not None:
            yield Problem(str(one), "it is anonymised in a row that is deleted", "Leave out the one or the other.")
    elif not isinstance(strategy, Retain):
        yield from _anonymised(declaration, one, strategy or Anonymise(), paths)


def _anonymised(
    declaration: Declaration, one: MappedColumn, strategy: Anonymise, paths: dict[str, Path]
) -> Iterator[Problem]:
    table = declaration.schema[one.table]
    column = table.column(one.name)
    assert column is not None  # noqa: S101 - the unknown ones were told of
    if (role := _role(declaration, one, paths)) is not None:
        yield Problem(str(one), f"it is {role} and cannot be anonymised", "Retain() it, or delete the row.")
    elif strategy.value is None and not column.nullable:
        hint = 'Give a value: Anonymise("erased"); or delete the row.'
        yield Problem(str(one), "it is NOT NULL and cannot be anonymised with NULL", hint)
    elif column.unique and strategy.value is not None and not callable(strategy.value):
        hint = "Give a function that makes a new value each time, such as Anonymise(lambda: uuid4().hex)."
        yield Problem(str(one), "it is unique, and a second subject could not get the same constant", hint)


def _role(declaration: Declaration, one: MappedColumn, paths: dict[str, Path]) -> str | None:
    """What else the column is for."""
    table = declaration.schema[one.table]
    column = table.column(one.name)
    if (one.table, one.name) == declaration.anchor:
        return "the anchor"
    if column is not None and column.primary_key:
        return "part of the primary key"
    soft = [hop for path in paths.values() for hop in path if hop.table == one.table]
    if any(one.name in key.columns for key in (*table.foreign_keys, *soft)):
        return "part of a foreign key"
    if any(one.name in key.target_columns for key in declaration.references_to(one.table)):
        return "what a foreign key refers to"
    return None
