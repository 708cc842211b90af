"""The page of handles says what the suite shows, and explains what is not plain yes."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, prose, rows, sections
from tests.matrix import APPEND_ONLY, AS_SESSION, COLUMNS, REFUSED, declared

PAGE = DOCS / "reference" / "adapters.md"
DATABASES = {"PostgreSQL": "postgres", "SQLite": "sqlite"}


def test_the_table_is_that_of_the_suite() -> None:
    documented = {
        (handle, driver, DATABASES[database]): dict(zip(COLUMNS, map(_plain, cells), strict=True))
        for handle, driver, database, *cells in rows(_first_table())
    }
    assert documented == declared()


def test_what_is_not_yes_is_explained() -> None:
    noted = {(note[1], note[2]) for note in re.finditer(r"([^|]+?) \[(\d)\]", _first_table())}
    assert {word.replace("`", "").strip() for word, _ in noted} == {APPEND_ONLY, AS_SESSION, REFUSED}
    for _, number in noted:
        assert re.search(rf"^{number}\. ", prose(PAGE), re.MULTILINE)


def _first_table() -> str:
    return prose(PAGE).partition("\n1. ")[0]


def _plain(cell: str) -> str:
    return re.sub(r" \[\d\]$", "", cell).replace("`", "")


def test_every_source_of_transactions_is_listed() -> None:
    from tests.factories import SOURCES

    listed = dict(sections(PAGE, 2))["Where handlers' transactions come from"]
    words = {source.given.partition(" ")[2] or source.given for source in SOURCES}
    assert not [word for word in words if word.replace("atomic()", "atomic") not in listed]
