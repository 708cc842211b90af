"""SQLAlchemy's models and tables as plain values. It is never imported before one of them was given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from postlude.core.data_map import Column, ForeignKey, Table
from postlude.errors import ConfigurationError

if TYPE_CHECKING:
    import sqlalchemy


def table_of(given: Any) -> sqlalchemy.Table:
    """Of a model, or a Table itself."""
    from sqlalchemy import Table as Real
    from sqlalchemy import inspect
    from sqlalchemy.orm import Mapper

    found = inspect(given, raiseerr=False) if isinstance(given, type) else given
    if isinstance(found, Mapper):
        if found.single and found.inherits is not None:
            whole = found.inherits.base_mapper.class_.__name__
            raise TypeError(
                f"{_named(given)} has no table of its own, and rows of {whole} that are none stand there too"
            )
        found = found.local_table
    if not isinstance(found, Real):
        raise TypeError(f"{_named(given)} is neither a model nor a Table")
    return found


def column_of(given: Any) -> sqlalchemy.Column[Any]:
    """Of a mapped attribute such as User.email, or a Column of a Table."""
    from sqlalchemy import Column as Real
    from sqlalchemy import Table as RealTable

    columns = getattr(getattr(given, "property", None), "columns", None)
    found = columns[0] if columns else given
    if not isinstance(found, Real) or not isinstance(found.table, RealTable):
        raise TypeError(f"{_named(given)} is no column of a model or a Table")
    return found


def named(table: Any, name: str) -> sqlalchemy.Column[Any]:
    """By its name in the database; `table.c` goes by keys, which may be others."""
    found: sqlalchemy.Column[Any] = next(one for one in table.c if one.name == name)
    return found


def read(metadata: Iterable[sqlalchemy.MetaData]) -> dict[str, Table]:
    from sqlalchemy.exc import NoReferenceError

    try:
        return {table.fullname: _read(table) for one in metadata for table in one.tables.values()}
    except NoReferenceError as error:
        raise ConfigurationError(
            f"a foreign key leads to a table or column that is not declared: {error}",
            hint="Import the module that declares it before the data map is used.",
        ) from error


def _read(table: sqlalchemy.Table) -> Table:
    unique = _unique(table)
    columns = tuple(
        Column(
            name=column.name,
            nullable=bool(column.nullable),
            primary_key=bool(column.primary_key),
            unique=frozenset({column.name}) in unique,
            kind=kind_of(column),
        )
        for column in table.columns
    )
    keys = dict.fromkeys(
        ForeignKey(
            table=table.fullname,
            columns=tuple(one.parent.name for one in key.elements),
            target=key.referred_table.fullname,
            target_columns=tuple(one.column.name for one in key.elements),
            on_delete=(key.ondelete or "").lower(),
        )
        for key in sorted(table.foreign_key_constraints, key=lambda one: [str(name) for name in one.column_keys])
    )
    return Table(table.fullname, columns, tuple(keys))


def kind_of(column: sqlalchemy.Column[Any]) -> str:
    try:
        return column.type.python_type.__name__
    except NotImplementedError:  # types of the user's own need not say
        return ""


def _unique(table: sqlalchemy.Table) -> set[frozenset[str]]:
    from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint

    kinds = (PrimaryKeyConstraint, UniqueConstraint)
    constraints = [[column.name for column in one.columns] for one in table.constraints if isinstance(one, kinds)]
    indexes = [[column.name for column in one.columns] for one in table.indexes if one.unique]
    single = [[column.name] for column in table.columns if column.unique]
    return {frozenset(names) for names in (*constraints, *indexes, *single)}


def _named(given: Any) -> str:
    """Its own name or its class, not its value."""
    return getattr(given, "__qualname__", None) or f"a {type(given).__name__}"
