"""What commands show: tables for people, one JSON object for programs, errors with a hint; never a password."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from postlude.secrecy import without_secrets

PIPED_WIDTH = 200
"""Nobody sees a terminal there, so tables need not be cut to 80 columns."""

LEAST_WIDTH = 24
"""Of a column that wraps."""

_STYLES = {
    "ok": "green", "warn": "yellow", "fail": "bold red", "dead": "red", "failed": "yellow", "sent": "green",
    "stuck": "red", "overdue": "red", "completed": "green", "compensated": "yellow", "no": "red",
}  # fmt: skip


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
    """A table that fits the terminal: optional columns go first, then the last one wraps. Nothing else is ever cut:
    where that is still too wide, each row becomes a paragraph."""
    console = stdout()
    texts = [[cell(value) for value in row] for row in rows]
    kept, fits = _fitting(columns, texts, console.width, optional)
    if not fits:
        _paragraphs(console, columns, texts, title)
        return
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for place in kept:
        is_number = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        made.add_column(
            columns[place],
            justify="right" if is_number else "left",
            no_wrap=place != kept[-1],
            overflow="fold",
        )
    for row in texts:
        made.add_row(*(row[place] for place in kept))
    console.print(made)


def _fitting(
    columns: Sequence[str], texts: Sequence[Sequence[Text]], width: int, optional: Sequence[str]
) -> tuple[list[int], bool]:
    """The places of the columns that have room, when the last one is given at least a little; and whether they do."""
    widths = [max([len(name), *(_widest(row[place]) for row in texts)]) for place, name in enumerate(columns)]
    if _wraps(columns[-1]):
        widths[-1] = min(widths[-1], LEAST_WIDTH)
    kept = list(range(len(columns)))
    for name in (*optional, None):
        if sum(widths[place] + 3 for place in kept) - 2 <= width:
            return kept, True
        if name is not None:
            kept.remove(columns.index(name))
    return kept, False


def _wraps(column: str) -> bool:
    """Ids are copied and pasted: they stay on one line."""
    return column not in ("event", "id", "operation")


def _widest(text: Text) -> int:
    return max(line.cell_len for line in text.split(allow_blank=True))


def _paragraphs(console: Console, columns: Sequence[str], texts: Sequence[Sequence[Text]], title: str | None) -> None:
    """For narrow terminals: the first value on a line of its own, the others below it with their names."""
    lines = [title] if title else []
    for row in texts:
        lines += textwrap.wrap(row[0].plain, console.width) or ["-"]
        for name, value in zip(columns[1:], row[1:], strict=True):
            for number, line in enumerate(value.plain.splitlines() or [""]):
                text = f"{name}: {line}" if number == 0 else line
                lines += textwrap.wrap(text, console.width, initial_indent="  ", subsequent_indent="    ")
    console.print(Text("\n".join(lines)), soft_wrap=True)


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


def error(code: str, message: str, hint: str, *, as_json: bool, next_command: str | None = None) -> None:
    """An error: a JSON object on stdout for programs; message, hint and what to type next on stderr for people."""
    message, hint = without_secrets(message), without_secrets(hint)
    if as_json:
        following = {} if next_command is None else {"next": next_command}
        json({"error": {"code": code, "message": message, "hint": hint, **following}})
        return
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
    if hint and not (next_command or "").startswith(hint):
        console.print(Text.assemble(("hint:  ", "bold"), printable(hint)), soft_wrap=True)
    if next_command is not None:
        console.print(Text.assemble(("next:  ", "bold"), printable(next_command)), soft_wrap=True)


def is_coloured() -> bool:
    """NO_COLOR with any value means none, and none means no escape code at all."""
    return not os.environ.get("NO_COLOR")


def is_lively(console: Console) -> bool:
    """May lines be drawn over?"""
    return console.is_terminal and is_coloured()


def _sentence(console: Console, text: str, style: str = "") -> None:
    """Wrapped at words for people; one line for programs."""
    console.print(Text(printable(text), style=style), soft_wrap=not console.is_terminal)


def _console(file: Any) -> Console:
    # Rich takes 80 columns for a pipe; COLUMNS is the user's own word.
    width = None if file.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    colours: Literal["auto"] | None = "auto" if is_coloured() else None
    return Console(file=file, width=width, color_system=colours, markup=False, highlight=False, emoji=False)
