"""`postlude saga`: which sagas there are, where one stands, and an operator's orders to it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from postlude.app import Postlude
from postlude.cli import completing, render
from postlude.cli.loading import load_app, open_app, using_schema
from postlude.cli.moments import between
from postlude.cli.options import Actor, AppRef, AsJson, Database, Limit, Reason
from postlude.cli.revealing import Reveal, Revealing, Why
from postlude.cli.saga_orders import ACTIONS, obey, value_of
from postlude.cli.saga_show import Shown, insight_of, known_to, look_at, print_shown, refuse_without_code, registry_of
from postlude.core.saga.mermaid import of_definition
from postlude.errors import ConfigurationError
from postlude.insight.sagas import PlanLine, SagaPage, names_of
from postlude.ports.sagas import SagaFilter

group = typer.Typer(
    help="Sagas: list, show, graph, plan; retry, skip, compensate, cancel.",
    no_args_is_help=True,
)

SagaId = Annotated[UUID, typer.Argument(metavar="ID", help="Of the run; `postlude saga list` shows it.")]
OfStep = Annotated[str | None, typer.Option("--step", help="The step that is meant; by default what needs help.")]
SHOWN = 50
"""Of the runs that go on, so many are shown in a plan."""


@group.command("list")
def list_(
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="Of the saga.", autocompletion=completing.saga_names)
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="running, compensating, stuck, completed, compensated.",
            autocompletion=completing.saga_statuses,
        ),
    ] = None,
    process: Annotated[str | None, typer.Option("--process", help="The runs of one process id.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Begun since: 2h, 7d, a date.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Begun before that.")] = None,
    limit: Limit = 100,
    after: Annotated[str | None, typer.Option("--after", help="Where the last page ended.")] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Sagas, newest first."""
    begun_since, begun_until = between(since, until)
    which = SagaFilter(name=name, status=status, process_id=process, since=begun_since, until=begun_until)

    async def work(opened: Postlude) -> SagaPage:
        return await insight_of(opened).list(which, limit=limit, after=after)

    page = using_schema(open_app(app, database), work)
    if json:
        render.json(page)
        return
    if not page.items:
        render.say("No saga fits.")
        return
    rows = [
        (one.id, one.name, one.process_id, one.generation, one.status, one.step, one.updated_at, one.error)
        for one in page.items
    ]
    columns = ("id", "saga", "process", "run", "status", "at", "updated", "error")
    render.table(columns, rows, optional=("run", "updated", "at", "saga"))
    if page.after is not None:
        render.note(f"There is more. Go on with: --after {page.after}")


@group.command()
def show(
    saga_id: SagaId,
    *,
    graph: Annotated[bool, typer.Option("--graph", help="As a Mermaid diagram; needs --app.")] = False,
    reveal: Reveal = False,
    reason: Why = None,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Where one saga stands: what it waits for, what is left, what went wrong, and its history."""
    revealing = Revealing(reveal=reveal, reason=reason, actor=actor)

    async def work(opened: Postlude) -> Shown:
        await revealing.audit(opened, str(saga_id))
        shown = await look_at(opened, saga_id, has_code=app is not None, graph=graph)
        return shown.masked() if revealing.masks(opened) else shown

    print_shown(using_schema(open_app(app, database), work), graph=graph, json=json)


@group.command()
def graph(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the saga.")],
    *,
    json: AsJson = False,
    app: AppRef = None,
) -> None:
    """The definition of a saga as a Mermaid diagram. It connects to nothing."""
    if app is None:
        refuse_without_code("the diagram of a definition")
    loaded = load_app(app)
    definition = known_to(loaded)(name)
    if definition is None:
        names = ", ".join(sorted(made.definition.name for made in registry_of(loaded))) or "none"
        raise ConfigurationError(f"the app has no saga {name!r}", hint=f"It has: {names}.")
    drawn = of_definition(definition)
    if json:
        render.json({"name": name, "graph": drawn})
    else:
        render.say(drawn)


@group.command()
def plan(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Set every saga that has not ended against the code of --app: does it go on, or why not? Exit 1: some cannot."""
    if app is None:
        refuse_without_code("a plan")
    lines = using_schema(open_app(app, database), lambda opened: insight_of(opened).plan())
    ends = [one for one in lines if not one.continues]
    if json:
        render.json({"continue": len(lines) - len(ends), "cannot": len(ends), "items": lines})
    else:
        _say_plan(lines, ends)
    raise typer.Exit(1 if ends else 0)


def _say_plan(lines: list[PlanLine], ends: list[PlanLine]) -> None:
    if not lines:
        render.say("No saga is under way.")
        return
    going = [one for one in lines if one.continues]
    shown = [*ends, *going[:SHOWN]]
    rows = [(one.id, one.name, one.process_id, one.status, "yes" if one.continues else "no", one.why) for one in shown]
    render.table(("id", "saga", "process", "status", "goes on", "why"), rows, optional=("status", "process"))
    if len(going) > SHOWN:
        render.note(f"and {len(going) - SHOWN:,} more that go on")
    if ends:
        render.say(f"{len(going):,} go on. This code cannot continue {len(ends):,}: {names_of(ends)}.")
        render.note("Workers of this code leave them alone. Deploy it when they have ended, or give it what they need.")
    else:
        render.say(f"All {len(going):,} go on.")


def _add_order(action: str) -> None:
    @group.command(action, help=ACTIONS[action].summary)
    def command(
        saga_id: SagaId,
        *,
        reason: Reason,
        actor: Actor = None,
        json: AsJson = False,
        app: AppRef = None,
        database: Database = None,
    ) -> None:
        obey(action, saga_id, app, database, json=json, actor=actor, reason=reason)


@group.command(help=ACTIONS["retry"].summary)
def retry(
    saga_id: SagaId,
    *,
    step: OfStep = None,
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    obey("retry", saga_id, app, database, json=json, step=step, actor=actor, reason=reason)


@group.command(help=ACTIONS["skip"].summary)
def skip(
    saga_id: SagaId,
    *,
    value: Annotated[str | None, typer.Option("--value", metavar="JSON", help="What the step brought.")] = None,
    step: OfStep = None,
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    said = value_of(value)
    obey("skip", saga_id, app, database, json=json, step=step, value=said, actor=actor, reason=reason)


_add_order("compensate")
_add_order("cancel")
