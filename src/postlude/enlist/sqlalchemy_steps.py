"""The steps of an erasure as SQLAlchemy statements on a Session or a Connection: one for each table, no row is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from postlude.core.data_map import ForeignKey, MappedColumn, Path, Retain
from postlude.core.erasure_plan import DeleteRows, DetachRows, KeepRows, Plan, Step, UpdateColumns
from postlude.core.sqlstate import sqlstate_of
from postlude.enlist.faults import meaning
from postlude.enlist.sqlalchemy_schema import kind_of, named
from postlude.errors import ConnectionClosed, DatabaseBusy, ErasureRefused, NotInTransaction
from postlude.ports.subject_data import Local

if TYPE_CHECKING:
    import sqlalchemy

QUIET = ("08", "25", "40", "42", "53", "55", "57", "58")
"""Classes of SQLSTATE whose messages name tables and connections, never values; a caller may want to try again."""


class Statements:
    """Of one plan, on the tables it was made for."""

    def __init__(self, plan: Plan, tables: Mapping[str, sqlalchemy.Table]) -> None:
        self._plan = plan
        self._tables = tables

    @property
    def anchor(self) -> sqlalchemy.Column[Any]:
        table, column = self._plan.anchor
        return named(self._tables[table], column)

    def erase(self, handle: Any, subject: Any) -> Local:
        """The subject is locked first, so that nobody gives it new rows meanwhile."""
        from sqlalchemy import select

        locking = select(self.anchor).where(self.anchor == subject).with_for_update()
        with _nameless("locking the subject"):
            found = handle.execute(locking).first() is not None
        counts: dict[str, dict[str, int]] = {}
        retained: list[str] = []
        for step in self._plan.steps:
            rows = self._rows(handle, step, subject)
            table = counts.setdefault(step.table, {})
            for word in _words(step):
                table[word] = table.get(word, 0) + rows
            if isinstance(step, UpdateColumns | KeepRows) and rows:
                retained += map(_retained, step.retained)
        return Local(tables=counts, retained=tuple(retained), found=found)

    def rectify(self, handle: Any, subject: Any, values: Mapping[str, Mapping[str, Any]]) -> Local:
        """By the paths of the map alone: rows that would only go along belong to others."""
        from sqlalchemy import update

        changed = {}
        for name, columns in values.items():
            table = self._tables[name]
            corrected = {named(table, column): value for column, value in columns.items()}
            statement = update(table).where(self.rows_of(name, self._plan.paths[name][:1], subject)).values(corrected)
            with _nameless(f"correcting {name}"):
                changed[name] = {"corrected": handle.execute(statement).rowcount}
        return Local(tables=changed)

    def count(self, handle: Any, subject: Any) -> dict[str, int]:
        return {
            step.table: self._count(handle, step, subject) for step in self._plan.steps if isinstance(step, DeleteRows)
        }

    def page(self, handle: Any, after: Any, limit: int) -> list[Any]:
        from sqlalchemy import select

        beyond = self.anchor.is_not(None) if after is None else self.anchor > after
        statement = select(self.anchor).where(beyond).distinct().order_by(self.anchor).limit(limit)
        with _nameless("reading the subjects"):
            return list(handle.execute(statement).scalars())

    def rows_of(self, table: str, paths: tuple[Path, ...], subject: Any) -> sqlalchemy.ColumnElement[bool]:
        from sqlalchemy import or_

        return or_(*(self._by_path(self._tables[table], path, subject) for path in paths))

    def _rows(self, handle: Any, step: Step, subject: Any) -> int:
        from sqlalchemy import delete, update

        if isinstance(step, KeepRows):
            return self._count(handle, step, subject)
        table = self._tables[step.table]
        statement: Any
        if isinstance(step, DetachRows):
            where = self._referring(step.key, step.paths, subject)
            statement = update(table).where(where).values({named(table, name): None for name in step.columns})
        elif isinstance(step, UpdateColumns):
            values = {named(table, name): how.made() for name, how in step.values}
            statement = update(table).where(self.rows_of(step.table, step.paths, subject)).values(values)
        else:
            statement = delete(table).where(self.rows_of(step.table, step.paths, subject))
        with _nameless(str(step)):
            rows: int = handle.execute(statement).rowcount
            return rows

    def _count(self, handle: Any, step: DeleteRows | KeepRows, subject: Any) -> int:
        from sqlalchemy import func, select

        where = self.rows_of(step.table, step.paths, subject)
        with _nameless(str(step)):
            rows: int = handle.execute(select(func.count()).select_from(self._tables[step.table]).where(where)).scalar()
            return rows

    def _referring(self, key: ForeignKey, paths: tuple[Path, ...], subject: Any) -> sqlalchemy.ColumnElement[bool]:
        from sqlalchemy import or_

        return or_(*(self._by_path(self._tables[key.table], (key, *path), subject) for path in paths))

    def _by_path(self, table: Any, path: Path, subject: Any) -> sqlalchemy.ColumnElement[bool]:
        """Every table within is an alias, so that none is taken for the one that is changed."""
        from sqlalchemy import select, tuple_

        if not path:
            by_id: sqlalchemy.ColumnElement[bool] = named(table, self._plan.anchor[1]) == subject
            return by_id
        key, rest = path[0], path[1:]
        columns = [named(table, name) for name in key.columns]
        if not rest and (key.target, *key.target_columns) == self._plan.anchor:
            # Where the database knows of no reference, an id may stand as text.
            known = str(subject) if key.soft and kind_of(columns[0]) == "str" else subject
            directly: sqlalchemy.ColumnElement[bool] = columns[0] == known
            return directly
        target = self._tables[key.target].alias()
        found = select(*(named(target, name) for name in key.target_columns)).where(
            self._by_path(target, rest, subject)
        )
        return (columns[0] if len(columns) == 1 else tuple_(*columns)).in_(found)


@contextmanager
def _nameless(what: str) -> Iterator[None]:
    """Errors of databases repeat keys and values: what may do so, is told in our words; the rest hides parameters."""
    from sqlalchemy.exc import OperationalError, StatementError

    try:
        yield
    except StatementError as error:
        error.hide_parameters = True
        if isinstance(meant := meaning(error), DatabaseBusy | NotInTransaction | ConnectionClosed):
            raise meant from None
        code = sqlstate_of(error)
        if code.startswith(QUIET) if code is not None else isinstance(error, OperationalError):
            raise
        raise ErasureRefused(
            f"the database refused a step ({type(error.orig or error).__name__}): {what}",
            hint="Roll back. Is the schema in the database the one that was mapped, and do the values fit its types?",
        ) from None


def _words(step: Step) -> Iterator[str]:
    match step:
        case DeleteRows():
            yield "deleted"
        case DetachRows():
            yield "detached"
        case UpdateColumns():
            yield "anonymised"
            if step.retained:
                yield "retained"
        case KeepRows():
            yield "retained"


def _retained(column: MappedColumn) -> str:
    assert isinstance(column.strategy, Retain)  # noqa: S101 - the plan says so
    until = f", until {column.strategy.until}" if column.strategy.until else ""
    return f"{column} ({column.strategy.basis}{until})"
