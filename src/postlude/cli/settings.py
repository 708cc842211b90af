"""`postlude settings`: what is in force, and where each value comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from postlude.cli import render
from postlude.cli.loading import load_app
from postlude.cli.options import AppRef, AsJson
from postlude.settings import Settings
from postlude.settings.listing import Row, listed

CHANGED = "*"


def settings(
    *,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the default.")] = False,
    json: AsJson = False,
    app: AppRef = None,
) -> None:
    """Print every setting in force here, and where it comes from. Secrets are masked; nothing is connected."""
    found = load_app(app).settings if app is not None else Settings.load()
    rows = [row for row in listed(found) if row.is_changed or not changed]
    if json:
        render.json({"settings": {row.key: _as_json(row) for row in rows}})
        return
    shown = [(CHANGED if row.is_changed else "", row.key, row.text, _source(row)) for row in rows]
    render.table(("", "key", "value", "from"), shown)
    count = sum(row.is_changed for row in rows)
    render.say(f"{count} differ from the default ({CHANGED})." if count else "All are as by default.")


def _as_json(row: Row) -> dict[str, object]:
    return {
        "value": row.value,
        "source": row.origin.kind,
        "from": row.origin.name,
        "changed": row.is_changed,
        "used": row.is_used,
    }


def _source(row: Row) -> str:
    return f"{row.origin}; not used yet" if row.is_changed and not row.is_used else str(row.origin)
