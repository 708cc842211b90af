"""`postlude maintenance`: the duties of the workers, and doing one by hand."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from postlude.app import Postlude
from postlude.cli import completing, progress, render
from postlude.cli.loading import open_app, using_schema
from postlude.cli.options import AppRef, AsJson, Database
from postlude.ports.upkeep import DutyRun
from postlude.runtime.duties.by_hand import DutyView

group = typer.Typer(help="Duties: list, run one by hand.", no_args_is_help=True)


@group.command("list")
def list_(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """The duties: who has each, when it last ran, what came of it, and when it is due again."""
    found = using_schema(open_app(app, database), lambda opened: opened.maintenance.duties())
    if json:
        render.json({"duties": found})
        return
    rows = [(one.name, one.owner or "nobody", one.ran_at, one.next_at, _result(one)) for one in found]
    render.table(("duty", "owner", "last run", "next", "last result"), rows)
    if not any(one.owner for one in found):
        render.note("Nobody has them: start a worker (postlude run shop:app), or run one by hand.")


@group.command()
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=completing.duties)],
    *,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Do a duty now, in bounded batches, until nothing is left; exit 1 while a worker has it."""

    async def work(opened: Postlude) -> DutyRun:
        with progress.of_count("rows") as told:
            return await opened.maintenance.run(name, told)

    done = using_schema(open_app(app, database), work)
    if json:
        render.json({"duty": name, **msgspec.structs.asdict(done)})
    else:
        render.say(f"{name}: {done.rows:,} rows in {done.seconds:.1f} s.")


def _result(duty: DutyView) -> str | None:
    if duty.ran_at is None:
        return None
    return f"failed: {duty.error}" if duty.error else f"{duty.rows or 0:,} rows in {duty.seconds or 0:.1f} s"
