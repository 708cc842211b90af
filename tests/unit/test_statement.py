from __future__ import annotations

import sqlite3

import pytest

from postlude.core.statement import Statement
from postlude.storage import statements
from postlude.storage.statements import parse, qualify

DIALECTS = ("postlude.storage.postgres", "postlude.storage.sqlite")
SQL = "SELECT :b::text, :a, :b, ':quoted', '%' -- :comment\nFROM t WHERE x = :a AND y LIKE '10%' AND z = 'it''s :not'"


def test_parameters_come_in_order_of_first_use() -> None:
    statement = Statement("s", SQL)
    assert statement.parameters == ("b", "a")
    assert statement.arguments({"a": 1, "b": 2, "c": 3}) == [2, 1]


def test_numbered_for_asyncpg() -> None:
    assert Statement("s", SQL).compile("dollar") == (
        "SELECT $1::text, $2, $1, ':quoted', '%' -- :comment\nFROM t WHERE x = $2 AND y LIKE '10%' AND z = 'it''s :not'"
    )


def test_named_for_psycopg_with_doubled_percent_signs() -> None:
    assert Statement("s", SQL).compile("pyformat") == (
        "SELECT %(b)s::text, %(a)s, %(b)s, ':quoted', '%%' -- :comment\n"
        "FROM t WHERE x = %(a)s AND y LIKE '10%%' AND z = 'it''s :not'"
    )


def test_sqlite_takes_it_as_it_is() -> None:
    statement = Statement("s", "SELECT :one + :two, ':three'")
    assert statement.compile("named") == statement.sql
    row = sqlite3.connect(":memory:").execute(statement.sql, {"one": 1, "two": 2}).fetchone()
    assert row == (3, ":three")


def test_a_missing_value_is_noticed() -> None:
    with pytest.raises(KeyError):
        Statement("s", "SELECT :a").arguments({})


def test_a_query_file_is_split_at_its_names() -> None:
    text = (
        "-- about the file\n\n-- name: one\n-- what it does\nSELECT 1\n\n-- name: two_2\nSELECT 2,\n  -- inside\n  3\n"
    )
    assert parse(text) == {"one": "SELECT 1", "two_2": "SELECT 2,\n  3"}


def test_a_name_stands_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse("-- name: one\nSELECT 1\n-- name: one\nSELECT 2\n")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, "SELECT 'postlude.x' FROM postlude.postlude_event"),
        ("public", "SELECT 'postlude.x' FROM \"public\".postlude_event"),
        ('odd"one', 'SELECT \'postlude.x\' FROM "odd""one".postlude_event'),
    ],
)
def test_the_schema_is_put_in_quoted(schema: str | None, expected: str) -> None:
    assert qualify("SELECT 'postlude.x' FROM postlude.postlude_event", schema) == expected


def test_no_backslash_of_a_schema_is_taken_for_a_group() -> None:
    assert qualify("postlude.postlude_event", r"a\1b") == r'"a\1b".postlude_event'


@pytest.mark.parametrize("package", DIALECTS)
def test_every_statement_is_one_statement(package: str) -> None:
    for statement in statements.load(package).values():
        assert statement.sql, statement.name
        assert not statement.sql.rstrip().endswith(";"), statement.name


def test_both_dialects_name_the_same_statements() -> None:
    """Where one needs several, the next ones end in _2 and _3."""
    postgres, sqlite = (set(statements.load(package)) for package in DIALECTS)
    further = ("_2", "_3")
    assert {name for name in postgres if not name.endswith(further)} == {
        name for name in sqlite if not name.endswith(further)
    }
    for names in (postgres, sqlite):
        assert all(name[:-2] in names for name in names if name.endswith(further))


def test_no_statement_of_postgres_is_left_unqualified() -> None:
    for name, statement in statements.load(DIALECTS[0]).items():
        assert " postlude_" not in statement.sql.replace("'postlude_", ""), name
