"""Reference pages say what the code says: settings, errors, lifecycle, schema, public names."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import asyncpg
import pytest

import postlude
from postlude import PostludeError, SagaView, Settings, errors
from postlude.core.lifecycle import Status, mermaid
from postlude.core.saga.decision import Ignored
from postlude.core.saga.instance import Phase, SagaStatus
from postlude.settings.keys import keys_of
from postlude.settings.naming import ELSEWHERE
from tests.docs.pages import DOCS, TOP, blocks, code, prose, rows, sections
from tests.source_tree import PACKAGE, ROOT
from tools.suite import tiers

REFERENCE = DOCS / "reference"
SQLITE_ONLY = {"postlude_event_subject", "postlude_completing"}


def test_settings_lists_every_key_with_its_default() -> None:
    table = _keys_documented()
    documented = {code(key)[0]: default for key, default, _ in table}
    assert documented == {key.name: _default(key.default) for key in keys_of(Settings).values()}


def test_settings_says_which_are_not_used_yet() -> None:
    said = {code(key)[0] for key, _, meaning in _keys_documented() if "*not used yet*" in meaning}
    assert said == {key.name for key in keys_of(Settings).values() if not key.is_used}


def test_words_lists_the_settings_of_other_systems() -> None:
    table = rows(dict(sections(DOCS / "words.md", 2))["Settings"])
    listed = {name: code(here) for elsewhere, here in table for name in code(elsewhere)}
    missing = {word for word, keys in ELSEWHERE.items() if not set(keys) <= set(listed.get(word, []))}
    assert not missing


def test_errors_lists_every_error_with_its_code() -> None:
    text = prose(REFERENCE / "errors.md")
    documented = {code(name)[0]: code(stable)[0] for name, stable, _ in rows(text)}
    assert documented == {error.__name__: error.code for error in _subclasses(PostludeError)}


def test_lifecycle_shows_the_diagram_of_the_code() -> None:
    diagrams = [block.text for block in blocks(REFERENCE / "lifecycle.md") if block.language == "mermaid"]
    assert diagrams == [mermaid() + "\n"]


def test_every_status_is_explained() -> None:
    explained = [code(row[0])[0] for row in rows(prose(REFERENCE / "lifecycle.md"))]
    assert explained == [str(status) for status in Status]


def test_sagas_explains_every_status_phase_and_word_of_history() -> None:
    parts = dict(sections(REFERENCE / "sagas.md", 2))
    explained = {
        title: [code(row[0])[0] for row in rows(parts[title])] for title in ("Status", "Phase", "History", "SagaView")
    }
    assert explained["Status"] == [str(status) for status in SagaStatus]
    assert explained["Phase"] == [str(phase) for phase in Phase]
    assert explained["SagaView"] == list(SagaView.__struct_fields__)
    # A refused order is raised, and what comes after the end is late.
    ignored = {str(reason) for reason in Ignored} - {"refused", "after_end"}
    assert sorted(explained["History"]) == sorted(ignored | set(_words_of_history()))


def _words_of_history() -> Iterator[str]:
    """The literals that decisions note."""
    for path in (ROOT / "src" / "postlude" / "core" / "saga").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                said = {"note": 0, "_order": 1}.get(name)
                yield from () if said is None else _literals(node.args[said])


def _literals(node: ast.expr) -> Iterator[str]:
    for part in (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def test_schema_lists_every_column_of_sqlite(sqlite_url: str) -> None:
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        found = connection.execute(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
            " WHERE m.type = 'table' AND m.name LIKE 'postlude!_%' ESCAPE '!'"
        ).fetchall()
    assert _documented_columns() == _by_table(found)


async def test_schema_lists_every_column_of_postgresql(any_postgres_url: str) -> None:
    connection = await asyncpg.connect(any_postgres_url)
    try:
        found = await connection.fetch(
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname LIKE 'postlude\\_%'"
            " AND a.attnum > 0 AND NOT a.attisdropped"
        )
    finally:
        await connection.close()
    documented = _documented_columns()
    assert {table: documented[table] for table in documented.keys() - SQLITE_ONLY} == _by_table(map(tuple, found))


def test_contributing_lists_every_tier() -> None:
    listed = [code(row[0])[0] for row in rows(prose(ROOT / "CONTRIBUTING.md"))]
    assert sorted(listed) == tiers()


def test_contributing_says_where_every_package_and_module_is() -> None:
    named = set(code(dict(sections(ROOT / "CONTRIBUTING.md", 2))["Where things are"]))
    there = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not there - {"__init__.py"} - named


def test_errors_are_drawn_as_they_are() -> None:
    drawn = re.findall(r"[├└]── (\w+) +([\w.]+)", errors.__doc__ or "")
    assert dict(drawn) == {error.__name__: error.code for error in _subclasses(PostludeError)}


def test_glossary_is_in_order_and_has_every_word_once() -> None:
    words = [row[0].lower() for row in rows(prose(DOCS / "glossary.md"))]
    assert words == sorted(set(words))


@pytest.mark.parametrize("page", [ROOT / TOP[0], *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_imports_in_pages_are_public(page: Any) -> None:
    """What a page imports from `postlude` itself is in its public list."""
    for block in blocks(page):
        for line in block.text.splitlines() if block.language == "python" else ():
            if line.startswith("from postlude import "):
                names = line.removeprefix("from postlude import ").split(", ")
                assert set(names) <= set(postlude.__all__), f"{page.name}:{block.line}"


def _keys_documented() -> list[list[str]]:
    return rows(dict(sections(REFERENCE / "settings.md", 2))["Keys"])


def _default(value: Any) -> str:
    return "-" if value is None else f"`{json.dumps(value)}`"


def _subclasses(root: type[PostludeError]) -> Iterator[type[PostludeError]]:
    for found in root.__subclasses__():
        if found.__module__.startswith("postlude.") and not found.__name__.startswith("_"):
            yield found
            yield from _subclasses(found)


def _documented_columns() -> dict[str, set[str]]:
    found = [
        (code(title)[0], code(row[0])[0]) for title, text in sections(REFERENCE / "schema.md", 2) for row in rows(text)
    ]
    assert not [one for one, times in Counter(found).items() if times > 1]
    return _by_table(found)


def _by_table(found: Any) -> dict[str, set[str]]:
    tables: dict[str, set[str]] = {}
    for table, column in found:
        tables.setdefault(table, set()).add(column)
    return tables
