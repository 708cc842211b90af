"""`postlude erasure lint`: what the data map seems to lack. It connects to nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from postlude.cli import render
from postlude.cli.loading import load_app
from postlude.cli.options import AsJson
from postlude.errors import ConfigurationError
from postlude.ports.subject_data import SubjectData

TROUBLE = 1


OfApp = Annotated[str, typer.Option("--app", metavar="MODULE:ATTR", help="The app that uses the map.")]


def lint(*, app: OfApp, json: AsJson = False) -> None:
    """Columns that look personal and tables near the subject that the data map does not name."""
    raise typer.Exit(report(_data_of(load_app(app)), as_json=json))


def _data_of(app: object) -> SubjectData:
    data: SubjectData | None = getattr(getattr(app, "erasure", None), "data", None)
    if data is None:
        raise ConfigurationError("the app has no data map", hint="Give it one: app.erasure.use(data).")
    return data


def report(data: SubjectData, *, as_json: bool) -> int:
    """Shows what was found and gives the exit code."""
    findings = data.lint()
    if as_json:
        render.json({"findings": findings})
    elif not findings:
        render.say("The data map lacks nothing that could be noticed.")
    else:
        render.table(("where", "what", "hint"), [(one.where, one.what, one.hint) for one in findings])
    return TROUBLE if findings else 0
