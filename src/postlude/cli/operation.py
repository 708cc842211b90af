"""`postlude operation`: bulk actions by filter, under way or ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import msgspec
import typer

from postlude.app import Postlude
from postlude.cli import completing, progress, render
from postlude.cli.acting import PAST, actor_name
from postlude.cli.loading import open_app, using_schema
from postlude.cli.options import Actor, AppRef, AsJson, Database, Limit, Reason
from postlude.ports.operating import Operation

group = typer.Typer(help="Bulk actions: list, show, resume, cancel.", no_args_is_help=True)
Id = Annotated[UUID, typer.Argument(metavar="ID", autocompletion=completing.operations)]


class OperationStatus(StrEnum):
    running = "running"
    done = "done"
    cancelled = "cancelled"


@group.command("list")
def list_(
    *,
    status: Annotated[OperationStatus | None, typer.Option("--status", help="running, done or cancelled.")] = None,
    limit: Limit = 100,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Bulk actions, newest first. One that is running although nobody runs it was interrupted: resume it."""
    found = using_schema(open_app(app, database), lambda opened: opened.insight.operations(status=status, limit=limit))
    if json:
        render.json({"operations": [_as_json(one) for one in found]})
        return
    if not found:
        render.say("There is no such operation." if status else "There was no bulk action yet.")
        return
    rows = [(one.id, one.action, one.status, _share(one), one.updated_at, one.actor, _filter(one)) for one in found]
    titles = ("operation", "action", "status", "done", "updated", "actor", "filter")
    render.table(titles, rows, optional=("updated", "actor", "done"))
    if len(found) == limit:
        render.note(f"There may be more. See them with: --limit {limit * 2}")


@group.command()
def show(id: Id, *, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """One bulk action: what it is aimed at, and how far it is."""
    _show(using_schema(open_app(app, database), lambda opened: opened.insight.operation(id)), json=json)


@group.command()
def resume(id: Id, *, actor: Actor = None, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Go on where it stands; exit 1 when it has ended already."""

    async def work(opened: Postlude) -> tuple[Operation, Operation]:
        await opened.start()
        before = await opened.insight.operation(id)
        with progress.of_operation() as told:
            return before, await opened.actions.resume_operation(id, actor=actor_name(actor), told=told)

    before, after = using_schema(open_app(app, database), work)
    if json:
        render.json({**_as_json(after), "changed": after.done - before.done})
    elif before.status != "running":
        render.say(f"It is {before.status} already: {_share(after)} {PAST[after.action]}.")
    else:
        render.say(f"{_share(after)} {PAST[after.action]}, {after.done - before.done:,} of them now.")
    raise typer.Exit(0 if before.status == "running" else 1)


@group.command()
def cancel(
    id: Id,
    *,
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Do nothing more of it; what was done stays done. Exit 1 when it has ended already."""

    async def work(opened: Postlude) -> tuple[bool, Operation]:
        cancelled = await opened.actions.cancel_operation(id, actor=actor_name(actor), reason=reason)
        return cancelled, await opened.insight.operation(id)

    cancelled, after = using_schema(open_app(app, database), work)
    if json:
        render.json({**_as_json(after), "changed": cancelled})
    else:
        render.say(f"Cancelled at {_share(after)}." if cancelled else f"It is {after.status} already.")
    raise typer.Exit(0 if cancelled else 1)


def _show(operation: Operation, *, json: bool) -> None:
    if json:
        render.json(_as_json(operation))
        return
    names = ("id", "action", "destination", "status", "actor", "reason", "created_at", "updated_at", "ended_at")
    rows: list[tuple[str, object]] = [(name, getattr(operation, name)) for name in names]
    rows += [("done", _share(operation)), ("filter", _filter(operation))]
    render.table(("what", "value"), rows)
    if operation.status == "running":
        render.note(f"If nobody runs it any more: postlude operation resume {operation.id}")


def _as_json(operation: Operation) -> dict[str, object]:
    said = {name: value for name, value in msgspec.structs.asdict(operation.filter).items() if value is not None}
    return {**msgspec.structs.asdict(operation), "filter": said}


def _share(operation: Operation) -> str:
    return f"{operation.done:,} of {operation.total:,}"


def _filter(operation: Operation) -> str:
    values = msgspec.structs.asdict(operation.filter).items()
    said = [f"{name}={render.cell(value).plain}" for name, value in values if value is not None]
    return " ".join([*said, f"to {operation.destination}"] if operation.destination else said) or "everything"
