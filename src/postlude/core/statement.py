"""Named SQL with `:name` parameters, compiled for a driver's own placeholder style by a pure function."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")
Style = Literal["dollar", "named", "pyformat"]
Row = tuple[Any, ...]

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_SPANS = re.compile(r"--[^\n]*|'(?:[^']|'')*'")


class Statement(msgspec.Struct, frozen=True):
    """One statement of a dialect, by name."""

    name: str
    sql: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in order of first use."""
        return tuple(dict.fromkeys(_PARAMETER.findall(_SPANS.sub("", self.sql))))

    def compile(self, style: Style) -> str:
        """The text for a driver: `$1` (asyncpg), `:name` (sqlite3) or `%(name)s` (psycopg)."""
        if style == "named":
            return self.sql
        numbers = {name: index for index, name in enumerate(self.parameters, 1)}

        def placeholder(match: re.Match[str]) -> str:
            return f"${numbers[match[1]]}" if style == "dollar" else f"%({match[1]})s"

        text = self.sql if style == "dollar" else self.sql.replace("%", "%%")
        return _outside_quotes(text, lambda part: _PARAMETER.sub(placeholder, part))

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in the order of `$1, $2, ...`."""
        return [values[name] for name in self.parameters]


class Call(msgspec.Struct, frozen=True):
    """A statement with its values, to be run on some handle."""

    statement: Statement
    values: dict[str, Any]


Script = Generator[Call, list[Row], T]
"""A conversation with a database without I/O: yields calls, is sent their rows, returns a result. The adapter of a
handle plays it, sync or async."""


def _outside_quotes(text: str, change: Any) -> str:
    parts: list[str] = []
    end = 0
    for span in _SPANS.finditer(text):
        parts += [change(text[end : span.start()]), span.group()]
        end = span.end()
    return "".join([*parts, change(text[end:])])
