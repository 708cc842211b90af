"""`postlude db`: the structure of the database."""

from __future__ import annotations

import sys
import tempfile
from enum import StrEnum
from typing import Annotated

import typer

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.loading import missing_file, open_app, require_database, using
from postlude.cli.options import AppRef, AsJson, Database
from postlude.errors import ConfigurationError
from postlude.ports.upkeep import SchemaStatus

group = typer.Typer(help="The structure of the database: upgrade, status, sql, verify.", no_args_is_help=True)


class PhaseName(StrEnum):
    pre = "pre"
    post = "post"


Phase = Annotated[
    PhaseName | None, typer.Option("--phase", help="pre: before new code is deployed; post: after. Both by default.")
]


@group.command()
def upgrade(*, phase: Phase = None, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Apply what is pending; safe from many processes at once and safe to repeat."""

    async def work(opened: Postlude) -> tuple[list[str], SchemaStatus]:
        applied = await opened.db.upgrade(phase)
        return applied, await opened.db.status()

    applied, status = using(open_app(app, database), work)
    if json:
        render.json({"applied": applied, "version": status.version, "pending": status.pending})
        return
    for name in applied:
        render.say(f"applied {name}")
    render.say(f"The schema is at version {status.version}." if applied else "Nothing to do: the schema is up to date.")


@group.command()
def status(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """How far the schema is; exit 1 when an upgrade is pending."""
    found = using(open_app(app, database), _status)
    if json:
        render.json(found)
    else:
        rows: list[tuple[str, object]] = [("version", found.version or "not installed"), ("newest", found.newest)]
        rows += [("lanes", found.lanes), ("installation", found.installation)]
        rows += [("pending", ", ".join(found.pending) or "nothing")]
        render.table(("what", "value"), rows)
        if is_behind(found):
            render.say("Run `postlude db upgrade`.")
    raise typer.Exit(1 if is_behind(found) else 0)


class Part(StrEnum):
    app = "app"
    worker = "worker"
    redactor = "redactor"
    viewer = "viewer"


@group.command()
def sql(
    *,
    role: Annotated[
        Part | None, typer.Option("--role", help="Instead: GRANT what that part needs, and nothing more.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="ROLE", help="With --role: the role; by default postlude_PART.")
    ] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Print the DDL without connecting; the URL only says which dialect."""
    if name is not None and role is None:
        raise ConfigurationError("--name goes with --role", hint="postlude db sql --role app --name shop")
    made = open_app(app, database).db
    text = made.sql() if role is None else made.grants(role, name or f"postlude_{role}")
    if json:
        render.json({"sql": text})
    else:
        sys.stdout.write(text.rstrip("\n") + "\n")


@group.command()
def verify(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Compare the database with what it should be; exit 1 when it differs."""

    async def work(opened: Postlude) -> list[str]:
        await require_database(opened)
        return await opened.db.verify()

    problems = using(open_app(app, database), work)
    if json:
        render.json({"problems": problems})
    elif problems:
        render.table(("problem",), [(problem,) for problem in problems])
    else:
        render.say("The schema is as it should be.")
    raise typer.Exit(1 if problems else 0)


def is_behind(status: SchemaStatus) -> bool:
    """Tables alone, made from `db sql`, are not enough: an upgrade also fixes the number of lanes."""
    return bool(status.pending) or status.lanes is None


async def _status(app: Postlude) -> SchemaStatus:
    if missing_file(app) is None:
        return await app.db.status()
    # An empty file elsewhere gives the same answer and leaves the user's directory alone.
    with tempfile.TemporaryDirectory() as folder:
        empty = Postlude(f"sqlite:///{folder}/empty.db", settings=app.settings)
        try:
            return await empty.db.status()
        finally:
            await empty.close()
