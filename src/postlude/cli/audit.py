"""`postlude audit`: who did what, when and why, and whether what is written is still what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from postlude.app import Postlude
from postlude.audit.lines import as_json, line_of
from postlude.audit.report import AuditReport
from postlude.cli import render
from postlude.cli.loading import open_app, using_schema
from postlude.cli.moments import between
from postlude.cli.options import AppRef, AsJson, Database, Limit
from postlude.cli.writing import Document, Lines, target_file
from postlude.core.audit_chain import AuditRecord

group = typer.Typer(help="The audit trail: list, verify, export.", no_args_is_help=True)


@group.callback()
def audit() -> None:
    """The audit trail: list, verify, export."""


@group.command("list")
def list_(
    *,
    target: Annotated[str | None, typer.Option("--target", help="Event id, destination or operation id.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="A data subject's own id, not stored.")] = None,
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
    """What was done, newest first."""
    done_since, done_until = between(since, until)
    which = {"target": target, "subject": subject, "action": action, "actor": actor}

    async def work(opened: Postlude) -> list[AuditRecord]:
        found = await opened.audit.list(**which, since=done_since, until=done_until, limit=limit, after=after)
        return [*found]

    found = using_schema(open_app(app, database), work)
    following = found[-1].id if len(found) == limit else None
    if json:
        render.json({"items": [as_json(one) for one in found], "after": following})
        return
    if not found:
        render.say("No audit record fits.")
        return
    rows = [(one.target, one.action, one.actor, one.at, one.reason) for one in found]
    render.table(("target", "action", "actor", "at", "reason"), rows, optional=("actor", "at"))
    if following is not None:
        render.note(f"There is more. Go on with: --after {following}")


@group.command()
def verify(
    *,
    copy: Annotated[
        Path | None, typer.Option("--copy", metavar="FILE", help="The copy of a file sink, to compare with.")
    ] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Read the whole chain; 1: something was changed, removed, put in or reordered, and is named."""
    report = using_schema(open_app(app, database), lambda opened: opened.audit.verify(copy))
    if json:
        render.json(report)
    else:
        _show(report)
    if not report.ok:
        raise typer.Exit(1)


def _show(report: AuditReport) -> None:
    if report.linked is None:
        render.note("Nothing could be linked first: this user may not, or the head is broken.")
    elif report.linked:
        render.note(f"{report.linked:,} records were linked first.")
    for problem in report.problems:
        render.say(f"{problem.kind}: {problem.said}")
    if report.found > len(report.problems):
        render.say(f"and {report.found - len(report.problems):,} more.")
    beside = "" if report.copied is None else f" The copy has {report.copied:,}."
    end = f"The chain has {report.links:,} links and ends with {report.hash or 'nothing'}.{beside}"
    render.say(
        f"{report.records:,} records: " + ("all as they were linked." if report.ok else "NOT as they were linked.")
    )
    render.say(end)


@group.command()
def export(
    *,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Written whole or not at all.")
    ] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Every linked record in the order of the chain, as JSON lines, the form of a copy; with --json and no file,
    as one JSON object."""

    async def work(opened: Postlude) -> tuple[int, int]:
        linked, written = await opened.audit.link_if_allowed(), 0
        if linked:
            render.note(f"{linked:,} records were linked first.")
        last = 0
        with target_file(output) as file:
            form = Document(file, "records") if json and output is None else Lines(file)
            async for record in opened.audit.export():
                form.write(line_of(record))
                written += 1
                last = record.position or 0
            form.end(written)
        return written, last

    written, last = using_schema(open_app(app, database), work)
    if output is not None and json:
        render.json({"exported": written, "output": str(output)})
    elif output is not None:
        render.say(f"{written:,} records written to {output}")
    if written != last:
        render.note(f"{last - written:,} records of the chain are missing: postlude audit verify")
        raise typer.Exit(1)
