"""The data map on SQLAlchemy's models and tables: declared once, then erased, rectified and counted by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from postlude.core import data_lint
from postlude.core.calls import Correction
from postlude.core.data_lint import Finding
from postlude.core.data_map import Declaration, Delete, MappedColumn, MappedTable, Problem, Strategy
from postlude.core.erasure_plan import Plan, plan_erasure, refusal
from postlude.enlist.sqlalchemy_ids import converted, kind_of_ids
from postlude.enlist.sqlalchemy_schema import column_of, named, read, table_of
from postlude.enlist.sqlalchemy_sessions import on_session
from postlude.enlist.sqlalchemy_steps import Statements
from postlude.errors import ErasureRefused
from postlude.ports.subject_data import Local

if TYPE_CHECKING:
    import sqlalchemy

T = TypeVar("T")
READING = "Give models, Tables, and their columns."


class DataMap:
    """Where personal data is and what becomes of it. Tables that stay unmapped are left alone.

    Everything may be declared in any order. What cannot work is refused by `plan()`, all of it at once; whatever takes
    the map asks for the plan first.
    """

    def __init__(self, anchor: Any) -> None:
        """`anchor` is the column that holds the ids of subjects, such as User.id."""
        self._tables: dict[str, MappedTable] = {}
        self._columns: list[MappedColumn] = []
        self._harmless: set[str] = set()
        self._real: dict[str, sqlalchemy.Table] = {}
        self._problems: list[Problem] = []
        self._ready: tuple[Plan, Statements] | None = None
        self._anchor = self._column(anchor, "anchor=")

    def table(self, table: Any, strategy: Delete | None = None, *, path: Any = None) -> Self:
        """With Delete() the subject's rows go. `path` is a column that leads to the subject, or one for each table on
        the way; it is needed only where foreign keys do not lead there in exactly one way."""
        hops = path if isinstance(path, tuple | list) else () if path is None else (path,)
        name = self._table(table)
        columns = [self._column(hop, "path=") for hop in hops]
        if strategy is not None and not isinstance(strategy, Delete):
            self._refuse(name or "a table", "rows are deleted or stay", "Give Delete(), or say it of columns.")
        elif name is not None and self._tables.get(name, MappedTable(name)) != MappedTable(name):
            self._refuse(name, "it is declared twice", "Declare it once.")
        elif name is not None and None not in columns:
            self._tables[name] = MappedTable(name, strategy is not None, tuple(one for one in columns if one))
        self._ready = None
        return self

    def column(self, column: Any, category: str, strategy: Strategy | None = None) -> Self:
        """What kind of personal data it holds. Without a strategy it goes with its row, or becomes NULL where the row
        stays."""
        found = self._column(column, f"category {category!r}")
        where = ".".join(found or ("a column",))
        if not isinstance(category, str):
            self._refuse(where, "it has no category", 'Name one, such as "email", before the strategy.')
        elif not isinstance(strategy, Strategy | None):
            self._refuse(
                where, "its strategy is none", "Give Anonymise(), Retain(...) or nothing, with the parentheses."
            )
        elif found is not None:
            self._tables.setdefault(found[0], MappedTable(found[0]))
            self._columns.append(MappedColumn(*found, category, strategy))
        self._ready = None
        return self

    def not_personal(self, *given: Any) -> Self:
        """Columns or tables that the linter asks about in vain."""
        for one in given:
            if getattr(one, "property", None) is not None or hasattr(one, "table"):
                found = self._column(one, "not_personal")
                self._harmless.add(".".join(found) if found else "")
            else:
                self._harmless.add(self._table(one) or "")
        self._ready = None
        return self

    def plan(self) -> Plan:
        return self._prepared()[0]

    def lint(self, *metadata: sqlalchemy.MetaData) -> list[Finding]:
        """What seems to be missing, in the given metadata and in that of the mapped tables."""
        if self._problems:
            return [Finding(kind="refused", where=p.where, what=p.what, hint=p.hint) for p in self._problems]
        return data_lint.lint(self._declaration(metadata), frozenset(self._harmless))

    def require_id(self, subject_id: str) -> None:
        self._id(subject_id)

    def require_categories(self, corrections: Sequence[Correction]) -> None:
        self._corrected(corrections)

    async def erase(self, session: Any, subject_id: str) -> Local:
        statements, subject = self._prepared()[1], self._id(subject_id)
        return await on_session(session, lambda handle: statements.erase(handle, subject), self._changed())

    async def rectify(self, session: Any, subject_id: str, corrections: Sequence[Correction]) -> Local:
        statements, subject = self._prepared()[1], self._id(subject_id)
        values = self._corrected(corrections)
        return await on_session(session, lambda handle: statements.rectify(handle, subject, values), self._changed())

    async def count(self, session: Any, subject_id: str) -> Mapping[str, int]:
        statements, subject = self._prepared()[1], self._id(subject_id)
        return await on_session(session, lambda handle: statements.count(handle, subject))

    async def subject_ids(self, session: Any, *, after: str | None = None, limit: int = 500) -> list[str]:
        statements, last = self._prepared()[1], None if after is None else self._id(after)
        return [str(one) for one in await on_session(session, lambda handle: statements.page(handle, last, limit))]

    def _corrected(self, corrections: Sequence[Correction]) -> dict[str, dict[str, Any]]:
        """By table and column. Who swaps the arguments of a Correction must not read a name in an error."""
        by_category = {one.category: one.value for one in corrections}
        if len(by_category) < len(corrections):
            raise ErasureRefused("two corrections are of the same category", hint="Give one value for each.")
        known = {one.category for one in self._columns}
        if not by_category.keys() <= known:
            hint = f"The map has: {', '.join(sorted(known))}."
            raise ErasureRefused("a correction is of a category that no column of the data map has", hint=hint)
        values: dict[str, dict[str, Any]] = {}
        for one in self._columns:
            if one.category in by_category:
                value = by_category[one.category]
                if value is None and not named(self._real[one.table], one.name).nullable:
                    raise ErasureRefused(f"{one} is NOT NULL and a correction of its category has no value")
                values.setdefault(one.table, {})[one.name] = value
        return values

    def _changed(self) -> frozenset[str]:
        """Tables whose loaded objects are out of date afterwards."""
        return frozenset({*self._tables, *(step.table for step in self.plan().steps)})

    def _id(self, subject_id: str) -> Any:
        return converted(subject_id, self._prepared()[1].anchor)

    def _prepared(self) -> tuple[Plan, Statements]:
        if self._ready is None:
            if self._problems:
                raise refusal(self._problems)
            declaration = self._declaration(())
            plan = plan_erasure(declaration)
            real = {table.fullname: table for one in self._metadata(()) for table in one.tables.values()}
            statements = Statements(plan, real)
            kind_of_ids(statements.anchor)
            self._ready = plan, statements
        return self._ready

    def _declaration(self, metadata: Sequence[sqlalchemy.MetaData]) -> Declaration:
        assert self._anchor is not None  # noqa: S101 - else there is a problem
        return Declaration(read(self._metadata(metadata)), self._anchor, dict(self._tables), tuple(self._columns))

    def _metadata(self, more: Sequence[sqlalchemy.MetaData]) -> Iterator[sqlalchemy.MetaData]:
        yield from dict.fromkeys([*(table.metadata for table in self._real.values()), *more])

    def _table(self, given: Any) -> str | None:
        return self._reading("a table", lambda: self._known(table_of(given)))

    def _column(self, given: Any, where: str) -> tuple[str, str] | None:
        def found() -> tuple[str, str]:
            column = column_of(given)
            return self._known(column.table), column.name

        return self._reading(where, found)

    def _known(self, table: Any) -> str:
        self._real[table.fullname] = table
        return str(table.fullname)

    def _reading(self, where: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except TypeError as error:
            self._refuse(where, str(error), READING)
            return None

    def _refuse(self, where: str, what: str, hint: str) -> None:
        self._problems.append(Problem(where, what, hint))
