"""What must hold for the repository's texts: nothing of one machine in them, and the same queries in every dialect."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.source_tree import PACKAGE, texts

# The patterns are spelled so that this file does not find itself.
MACHINE_PATHS = re.compile(r"(?<![\w.*])/(?:root|home|work|Users)/")
REGISTRIES = re.compile(r"(?:pypi|pythonhosted|npmjs)\.org")

DIALECTS = ("postgres", "sqlite")
QUERY_NAME = re.compile(r"^-- name: (\S+)\s*$", re.MULTILINE)
STEP = re.compile(r"_[2-9]$")


@pytest.mark.parametrize(
    ("what", "pattern"),
    [("paths of a machine", MACHINE_PATHS), ("hosts of a registry", REGISTRIES)],
    ids=["paths", "registries"],
)
def test_no_text_depends_on_where_it_was_written(what: str, pattern: re.Pattern[str]) -> None:
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


def test_every_dialect_has_the_same_queries() -> None:
    postgres, sqlite = ({_operation(name) for name in _query_names(dialect)} for dialect in DIALECTS)
    assert postgres, "no query is named: lines of the form `-- name: query_name`"
    assert postgres == sqlite, f"only postgres: {sorted(postgres - sqlite)}; only sqlite: {sorted(sqlite - postgres)}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_query_names_are_unique_and_steps_follow_each_other(dialect: str) -> None:
    names = _query_names(dialect)
    twice = sorted({name for name in names if names.count(name) > 1})
    astray = [name for before, name in pairwise(["", *names]) if STEP.search(name) and before != _step_before(name)]
    assert not twice
    assert not astray, "a step must come right after the one before it"


def _query_names(dialect: str) -> list[str]:
    files = sorted((PACKAGE / "storage" / dialect).glob("*.sql"))
    return [name for file in files for name in QUERY_NAME.findall(file.read_text())]


def _operation(name: str) -> str:
    """`append_2` is the second statement of `append`: a dialect may need several where another needs one."""
    return STEP.sub("", name)


def _step_before(name: str) -> str:
    step = int(name[-1])
    return _operation(name) if step == 2 else f"{_operation(name)}_{step - 1}"
