"""What a data map seems to lack: columns that sound personal, tables near the subject, and what cannot work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from postlude.core.data_map import Column, Declaration, Table
from postlude.core.data_paths import reachable
from postlude.core.erasure_plan import plan_of, problems_of
from postlude.core.personal_words import looks_personal

OURS = "postlude_"
BIRTH = frozenset({"birth", "birthday", "birthdate", "dob"})
NO_DATA = frozenset({"bool", "datetime", "timedelta"})
"""Types whose values tell nobody who it is: `email_verified`, `email_sent_at`."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["refused", "unmapped_column", "unmapped_table"]
    where: str
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.hint}"


def lint(declaration: Declaration, harmless: frozenset[str]) -> list[Finding]:
    """`harmless` names what was looked at before: tables, and columns as `table.column`."""
    refused = [
        Finding(kind="refused", where=one.where, what=one.what, hint=one.hint) for one in problems_of(declaration)
    ]
    near = reachable(declaration) | set(declaration.tables)
    # Rows that go by ON DELETE CASCADE are in the plan, if not in the map.
    plan = plan_of(declaration)
    gone = plan.deleted - set(declaration.tables) if plan else frozenset()
    tables = [
        table
        for name, table in sorted(declaration.schema.items())
        if name not in harmless and name not in gone and not name.rpartition(".")[2].startswith(OURS)
    ]
    return [*refused, *_tables(declaration, tables, near), *_columns(declaration, tables, near, harmless)]


def _tables(declaration: Declaration, tables: Iterable[Table], near: frozenset[str] | set[str]) -> Iterator[Finding]:
    for table in tables:
        if table.name in near and table.name not in declaration.tables and table.name != declaration.anchor[0]:
            yield Finding(
                kind="unmapped_table",
                where=table.name,
                what="foreign keys lead from it to the subject, and it is not in the map",
                hint="Map it, or say data.not_personal(...) of the table.",
            )


def _columns(
    declaration: Declaration, tables: Iterable[Table], near: frozenset[str] | set[str], harmless: frozenset[str]
) -> Iterator[Finding]:
    mapped = {str(one) for one in declaration.columns}
    for table in tables:
        keys = {name for key in table.foreign_keys for name in key.columns}
        for column in table.columns:
            where = f"{table.name}.{column.name}"
            if where in mapped | harmless or column.primary_key or column.name in keys:
                continue
            word = looks_personal(column.name, near_subject=table.name in near)
            if word is not None and _may_tell(column, word):
                yield Finding(
                    kind="unmapped_column",
                    where=where,
                    what=f"its name looks personal ({word}), and it is not in the map",
                    hint="Map it, or say data.not_personal(...) of the column.",
                )


def _may_tell(column: Column, word: str) -> bool:
    return column.kind not in NO_DATA or word in BIRTH
