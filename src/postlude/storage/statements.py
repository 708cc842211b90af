"""Loads a dialect's named queries from its text files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

from postlude.core.statement import Statement

_NAME = re.compile(r"^-- name: ([a-z0-9_]+)$", re.MULTILINE)


def load(package: str, *, schema: str | None = None) -> Mapping[str, Statement]:
    """The statements of the `.sql` files in a package, by name, with the schema put in."""
    files = sorted(file.name for file in resources.files(package).iterdir() if file.name.endswith(".sql"))
    text = "\n".join(resources.files(package).joinpath(name).read_text("utf-8") for name in files)
    return {name: Statement(name, qualify(sql, schema)) for name, sql in parse(text).items()}


def parse(text: str) -> dict[str, str]:
    """Split a query file at its `-- name:` lines; comment lines are dropped."""
    names = list(_NAME.finditer(text))
    ends = [name.start() for name in names[1:]] + [len(text)]
    queries: dict[str, str] = {}
    for name, end in zip(names, ends, strict=True):
        if name[1] in queries:
            raise ValueError(f"query {name[1]} is there twice")
        lines = text[name.end() : end].splitlines()
        queries[name[1]] = "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("--"))
    return queries


def qualify(sql: str, schema: str | None) -> str:
    """Put the real schema where the text says `postlude.`; the text itself stays valid SQL."""
    if schema is None:
        return sql
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(r"\bpostlude\.(?=postlude_)", lambda _: f"{quoted}.", sql)
