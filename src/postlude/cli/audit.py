"""`postlude audit`: who did what, when and why."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.loading import open_app, require_schema, using
from postlude.cli.moments import between
from postlude.cli.options import AppRef, AsJson, Database, Limit
from postlude.insight.insight import Audits
from postlude.ports.store import AuditFilter

group = typer.Typer(help="The audit records of operators' actions.", no_args_is_help=True)


@group.callback()
def audit() -> None:
    """The audit records of operators' actions."""


@group.command("list")
def list_(
    *,
    target: Annotated[str | None, typer.Option("--target", help="Event id, destination or operation id.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="requeue, discard, bury, replay, pause, ...")] = None,
    actor: Annotated[str | None, typer.Option("--actor", help="Who did it.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Done since: 2h, 7d, a date.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Done before that.")] = None,
    limit: Limit = 100,
    after: Annotated[UUID | None, typer.Option("--after", help="The id where the last page ended.")] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """What operators did, newest first."""
    done_since, done_until = between(since, until)
    which = AuditFilter(actor=actor, action=action, since=done_since, until=done_until)

    async def work(opened: Postlude) -> Audits:
        await require_schema(opened)
        return await opened.insight.audits(target=target, limit=limit, which=which, after=after)

    found = using(open_app(app, database), work)
    following = found[-1]["id"] if len(found) == limit else None
    if json:
        render.json({"items": found, "after": following})
        return
    if not found:
        render.say("No audit record fits.")
        return
    rows = [(one["target"], one["action"], one["actor"], one["at"], one["reason"]) for one in found]
    render.table(("target", "action", "actor", "at", "reason"), rows, optional=("actor", "at"))
    if following is not None:
        render.note(f"There is more. Go on with: --after {following}")
