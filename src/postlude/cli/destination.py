"""`postlude destination`: brokers and handlers as the workers see them."""

from __future__ import annotations

from typing import Annotated

import typer

from postlude.app import Postlude
from postlude.cli import completing, render
from postlude.cli.acting import actor_name
from postlude.cli.loading import open_app, using_schema
from postlude.cli.options import Actor, AppRef, AsJson, Database, Reason
from postlude.insight.views import DestinationView

group = typer.Typer(help="Destinations: list, pause, resume.", no_args_is_help=True)
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A broker's name, or handler:NAME.", autocompletion=completing.destinations),
]


@group.command("list")
def list_(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Every destination that is known or has open work."""
    found = using_schema(open_app(app, database), lambda opened: opened.insight.destinations())
    if json:
        render.json({"destinations": found})
        return
    if not found:
        render.say("No destination is known yet: a worker tells which it serves when it starts.")
        return
    render.table(("destination", "kind", "open", "dead", "lanes", "oldest due", "paused"), [_row(one) for one in found])


@group.command()
def pause(
    name: Name,
    *,
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Let no worker deliver to it until it is resumed; what arrives meanwhile waits."""

    async def work(opened: Postlude) -> bool:
        return await opened.actions.pause(name, actor=actor_name(actor), reason=reason)

    _answer(name, "paused", "was paused already", changed=using_schema(open_app(app, database), work), json=json)


@group.command()
def resume(
    name: Name,
    *,
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Let workers deliver to it again."""

    async def work(opened: Postlude) -> bool:
        return await opened.actions.resume(name, actor=actor_name(actor), reason=reason)

    _answer(name, "resumed", "was not paused", changed=using_schema(open_app(app, database), work), json=json)


def _row(one: DestinationView) -> tuple[object, ...]:
    opened, dead = sum(one.open.values()), one.open.get("dead", 0)
    lanes = f"{one.lanes_owned} of {one.lanes}"
    paused = f"{render.moment(one.paused_at)} by {one.paused_by}: {one.reason}" if one.paused_at else None
    return one.name, one.kind, opened, dead, lanes, render.age_text(one.oldest_due_seconds), paused


def _answer(name: str, done: str, already: str, *, changed: bool, json: bool) -> None:
    if json:
        render.json({"destination": name, "changed": changed})
    else:
        render.say(f"{name} {done}." if changed else f"{name} {already}.")
    raise typer.Exit(0 if changed else 1)
