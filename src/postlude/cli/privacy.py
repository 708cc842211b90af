"""`postlude privacy`: data subjects in Postlude's own tables, and the keys of what is sealed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from postlude.app import Postlude
from postlude.cli import progress, render
from postlude.cli.acting import actor_name
from postlude.cli.loading import open_app, using_schema
from postlude.cli.options import Actor, AppRef, AsJson, Database, Reason
from postlude.privacy.privacy import Rotation
from postlude.privacy.redacting import Pending, Redaction

group = typer.Typer(
    help="Data subjects in Postlude's own tables, and the keys of what is sealed.", no_args_is_help=True
)
Why = Annotated[str, typer.Option("--reason", help="Why; it stands in the audit record.")]


class PendingChoice(StrEnum):
    discard = "discard"
    publish_first = "publish-first"


CHOICES: dict[PendingChoice, Pending] = {
    PendingChoice.discard: "discard",
    PendingChoice.publish_first: "publish_first",
}


@group.command()
def redact(
    subject: Annotated[str, typer.Argument(help="The subject's id, as events name it.")],
    *,
    pending: Annotated[
        PendingChoice, typer.Option("--pending", help="What becomes of its events that are still to be delivered.")
    ],
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Take a data subject out of events, dead letters and sagas; exit 1 when something must finish first."""

    async def work(opened: Postlude) -> Redaction:
        who = actor_name(actor)
        return await opened.privacy.redact(subject, pending=CHOICES[pending], actor=who, reason=reason)

    done = using_schema(open_app(app, database), work)
    if json:
        render.json({"redaction": done, "is_complete": done.is_complete})
    else:
        _say(done)
    raise typer.Exit(0 if done.is_complete else 1)


@group.command()
def rotate(
    *,
    reason: Why = "the active key changed",
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Seal stored events again that another key of the ring than the active one has sealed; exit 1 when some, or keys of
    data subjects, could not be opened."""

    async def work(opened: Postlude) -> Rotation:
        with progress.of_operation() as told:
            return await opened.privacy.rotate(actor=actor_name(actor), reason=reason, told=told)

    ended = using_schema(open_app(app, database), work)
    left = max(0, ended.total - ended.done)
    if json:
        operation = None if ended.created_at is None else ended.id
        counts = {
            "resealed": ended.done,
            "left": left,
            "keys_left": ended.keys_left,
            "secrets_left": ended.secrets_left,
        }
        render.json({"key": ended.destination, **counts, "operation": operation})
    else:
        what = "1 event is" if ended.done == 1 else f"{ended.done:,} events are"
        render.say(f"{what} sealed again, with {ended.destination}.")
        if left:
            render.note(f"{left:,} stay as they are: no key of the ring opens them.")
        if ended.keys_left:
            which = _counted(ended.keys_left, "data subject", "data subjects")
            render.note(f"The keys of {which} stay as they are: the key that wraps them is not in the ring.")
        if ended.secrets_left:
            render.note(f"{ended.secrets_left:,} secrets of calls stay as they are: no key of the ring opens them.")
    raise typer.Exit(1 if left or ended.keys_left or ended.secrets_left else 0)


@group.command()
def shred(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The id of the data subject.")],
    *,
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Drop the key of a data subject, for good: what it has sealed can never be opened again. Exit 1 when it was done
    before."""

    async def work(opened: Postlude) -> tuple[bool, bool]:
        had_key = await opened.privacy.has_key(subject)
        return had_key, await opened.privacy.shred(subject, actor=actor_name(actor), reason=reason)

    had_key, is_new = using_schema(open_app(app, database), work)
    if json:
        render.json({"shredded": is_new, "had_key": had_key})
    elif is_new and not had_key:
        render.say("It had no key of its own: nothing was sealed for it alone, and nothing will be.")
        render.note("Is that its id, as events name it?")
    else:
        render.say("Shredded." if is_new else "It was shredded before.")
    raise typer.Exit(0 if is_new else 1)


def _say(done: Redaction) -> None:
    events, sagas = _counted(done.events, "event", "events"), _counted(done.sagas, "saga", "sagas")
    deliveries = _counted(done.deliveries, "delivery", "deliveries")
    render.say(f"{events} and {sagas} redacted, {deliveries} discarded.")
    if not done.is_complete:
        waits = _counted(done.waits, "open delivery or saga", "open deliveries and sagas")
        render.say(f"{waits} must finish first.")
        render.note("Let a worker deliver them, help what is stuck (postlude saga list), then run this again.")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
