"""What commands show: tables for people, one JSON object for programs, errors with a hint; never a password."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 200
"""Nobody sees a terminal there, so tables need not be cut to 80 columns."""

LEAST_WIDTH = 24
"""Of a column that wraps."""

_CREDENTIALS = re.compile(r"(?<=://)([^\s/@:]*):\S*@")
_WITHOUT_SCHEME = re.compile(r"(?<![/\w])([\w.-]+):(?!//)\S+@")
_QUERY_SECRET = re.compile(r"([?&](?:[a-z_]*password|token|secret)=)[^\s&'\"]*", re.IGNORECASE)
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "dead": "red", "failed": "yellow", "sent": "green"}


def redact(text: str) -> str:
    """The text without passwords, wherever a URL stands in it."""
    text = _WITHOUT_SCHEME.sub(r"\1@", _CREDENTIALS.sub(r"\1@", text))
    return _QUERY_SECRET.sub(r"\1***", text)


def stdout() -> Console:
    return _console(sys.stdout)


def stderr() -> Console:
    return _console(sys.stderr)


def say(text: str) -> None:
    """A sentence of the answer."""
    _sentence(stdout(), text)


def note(text: str) -> None:
    """A sentence beside the answer."""
    _sentence(stderr(), text, style="dim")


def json(value: object) -> None:
    """The answer as one JSON object on one line."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    title: str | None = None,
    optional: Sequence[str] = (),
) -> None:
    """A table that fits the terminal: optional columns go first, then the last one wraps. Ids are never cut."""
    console = stdout()
    texts = [[cell(value) for value in row] for row in rows]
    kept = _fitting(columns, texts, console.width, optional)
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for place in kept:
        is_number = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        made.add_column(
            columns[place],
            justify="right" if is_number else "left",
            no_wrap=place != kept[-1],
            overflow="fold" if place == kept[-1] else "ellipsis",
            min_width=36 if columns[place] == "event" and rows else None,
        )
    for row in texts:
        made.add_row(*(row[place] for place in kept))
    console.print(made)


def _fitting(columns: Sequence[str], texts: Sequence[Sequence[Text]], width: int, optional: Sequence[str]) -> list[int]:
    """The places of the columns that have room, when the last one is given at least a little."""
    widths = [max([len(name), *(row[place].cell_len for row in texts)]) for place, name in enumerate(columns)]
    widths[-1] = min(widths[-1], LEAST_WIDTH)
    kept = list(range(len(columns)))
    for name in optional:
        if sum(widths[place] + 3 for place in kept) <= width:
            break
        kept.remove(columns.index(name))
    return kept


def cell(value: Any) -> Text:
    """One value for people; what could move a terminal's cursor is shown, not sent."""
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, datetime):
        return Text(moment(value))
    if isinstance(value, float):
        return Text(f"{value:,.1f}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    text = printable(str(value))
    return Text(text, style=_STYLES.get(text, ""))


def moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    return "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)


def bytes_text(size: float) -> str:
    """1536 is `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def age_text(seconds: float) -> str:
    """7300 is `2 h`."""
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def error(code: str, message: str, hint: str, *, as_json: bool) -> None:
    """An error: a JSON object on stdout for programs, message and hint on stderr for people."""
    message, hint = redact(message), redact(hint)
    if as_json:
        json({"error": {"code": code, "message": message, "hint": hint}})
        return
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
    if hint:
        console.print(Text.assemble(("hint:  ", "bold"), printable(hint)), soft_wrap=True)


def _sentence(console: Console, text: str, style: str = "") -> None:
    """Wrapped at words for people; one line for programs."""
    console.print(Text(printable(text), style=style), soft_wrap=not console.is_terminal)


def _console(file: Any) -> Console:
    # Rich takes 80 columns for a pipe; COLUMNS is the user's own word.
    width = None if file.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)
