"""Where a data subject's data is: tables with their foreign keys, and what the declared map says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import msgspec


class Delete(msgspec.Struct, frozen=True):
    """The subject's rows of a table are deleted."""


class Anonymise(msgspec.Struct, frozen=True):
    """The column is overwritten: with NULL, a constant, or what a function without arguments returns when it is called
    once for the statement."""

    value: Any = None

    def made(self) -> Any:
        return self.value() if callable(self.value) else self.value


class Retain(msgspec.Struct, frozen=True):
    """The column is kept, because a law says so; the erasure records which and why."""

    basis: str
    until: date | None = None

    def __post_init__(self) -> None:
        if not self.basis.strip():
            raise ValueError("what is retained needs its legal basis, such as Retain('tax law, ten years')")


Strategy = Delete | Anonymise | Retain


class Column(msgspec.Struct, frozen=True):
    name: str
    nullable: bool = True
    primary_key: bool = False
    unique: bool = False
    kind: str = ""
    """The Python type of its values by name, where it is known."""


class ForeignKey(msgspec.Struct, frozen=True):
    """A soft one is a column that holds the id of the subject while the database knows of no constraint."""

    table: str
    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]
    on_delete: str = ""
    soft: bool = False

    def __str__(self) -> str:
        return f"{self.table}.{'+'.join(self.columns)}"


Path = tuple[ForeignKey, ...]
"""From a table to the subject, hop by hop; the table that holds the subject has the empty one."""


def shown(path: Path) -> str:
    """`item.order_id -> orders.user_id -> users`."""
    return " -> ".join([*map(str, path), path[-1].target]) if path else "the subject itself"


class Table(msgspec.Struct, frozen=True):
    name: str
    columns: tuple[Column, ...]
    foreign_keys: tuple[ForeignKey, ...] = ()

    def column(self, name: str) -> Column | None:
        return next((one for one in self.columns if one.name == name), None)


class MappedTable(msgspec.Struct, frozen=True):
    """`path` names columns, as far as they were given: `((table, column), ...)`."""

    name: str
    is_deleted: bool = False
    path: tuple[tuple[str, str], ...] = ()


class MappedColumn(msgspec.Struct, frozen=True):
    """Without a strategy the column goes with its row, or becomes NULL where the row stays."""

    table: str
    name: str
    category: str
    strategy: Strategy | None = None

    def __str__(self) -> str:
        return f"{self.table}.{self.name}"


class Declaration(msgspec.Struct, frozen=True):
    """Everything that was declared, together with the tables it was declared on. The anchor is the column that holds
    the ids of subjects."""

    schema: Mapping[str, Table]
    anchor: tuple[str, str]
    tables: Mapping[str, MappedTable]
    columns: tuple[MappedColumn, ...]

    def is_deleted(self, table: str) -> bool:
        return table in self.tables and self.tables[table].is_deleted

    def is_kept(self, table: str) -> bool:
        """Rows of subjects and of what the map names stay, unless the map itself deletes them."""
        return (table in self.tables or table == self.anchor[0]) and not self.is_deleted(table)

    def columns_of(self, table: str) -> Iterator[MappedColumn]:
        return (one for one in self.columns if one.table == table)

    def references_to(self, table: str) -> Iterator[ForeignKey]:
        return (key for one in self.schema.values() for key in one.foreign_keys if key.target == table)

    def detachable(self, key: ForeignKey) -> tuple[str, ...]:
        """The columns of a reference that can be set to NULL; rather those that no other foreign key shares."""
        table = self.schema[key.table]
        found = [one.name for one in table.columns if one.name in key.columns and one.nullable and not one.primary_key]
        shared = {name for other in table.foreign_keys if other != key for name in other.columns}
        return tuple(name for name in found if name not in shared) or tuple(found)


class Problem(msgspec.Struct, frozen=True):
    """What cannot work, where, and what to do about it."""

    where: str
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.hint}"
