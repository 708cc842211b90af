"""`postlude docs`: drawings made from the code itself."""

from __future__ import annotations

import sys

import typer

from postlude.cli import render
from postlude.cli.options import AsJson
from postlude.core.lifecycle import mermaid

group = typer.Typer(help="Drawings made from the code itself.", no_args_is_help=True)


@group.callback()
def docs() -> None:
    """Drawings made from the code itself."""


@group.command()
def lifecycle(*, json: AsJson = False) -> None:
    """The life of a delivery as a Mermaid state diagram."""
    if json:
        render.json({"mermaid": mermaid()})
    else:
        sys.stdout.write(mermaid() + "\n")
