"""`postlude outbox`: open and settled deliveries, and what an operator does with them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.acting import choose, perform
from postlude.cli.loading import open_app, using_schema
from postlude.cli.moments import between
from postlude.cli.options import (
    Actor,
    AppRef,
    AsJson,
    Database,
    DryRun,
    Everything,
    Limit,
    OfDestination,
    OfKey,
    OfStatus,
    OfType,
    Reason,
    Since,
    Until,
)
from postlude.insight.views import DestinationView, EventStory, Page

group = typer.Typer(help="Deliveries: stats, list, show, requeue, discard, bury.", no_args_is_help=True)

Ids = Annotated[list[UUID] | None, typer.Argument(metavar="EVENT_ID", help="Events; or give filters instead.")]


@group.command()
def stats(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Open work by status and destination."""

    async def work(opened: Postlude) -> tuple[dict[str, int], list[DestinationView], dict[str, int]]:
        insight = opened.insight
        return await insight.counts(), await insight.destinations(), await insight.unserved()

    counts, destinations, unserved = using_schema(open_app(app, database), work)
    if json:
        render.json({"counts": counts, "destinations": destinations, "unserved": unserved})
        return
    render.table(("status", "open"), list(counts.items()))
    if destinations:
        rows = [_stats_row(one, is_unserved=one.name in unserved) for one in destinations]
        render.table(("destination", "open", "dead", "oldest due", "state"), rows)


@group.command("list")
def list_(
    *,
    status: OfStatus = None,
    type: OfType = None,
    destination: OfDestination = None,
    key: OfKey = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    after: Annotated[str | None, typer.Option("--after", help="Where the last page ended.")] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Deliveries, oldest first: the open ones, or with --status sent or discarded the settled ones."""
    moments = between(since, until)

    async def work(opened: Postlude) -> Page:
        return await opened.insight.list(
            status, type, key, destination=destination, since=moments[0], until=moments[1], limit=limit, after=after
        )

    page = using_schema(open_app(app, database), work)
    if json:
        render.json(page)
        return
    if not page.items:
        render.say("No delivery fits.")
        return
    names = ("event_id", "type", "destination", "status", "attempts", "created_at", "key", "error")
    rows = [tuple(getattr(one, name) for name in names) for one in page.items]
    render.table(
        ("event", "type", "destination", "status", "tries", "made", "key", "error"),
        rows,
        optional=("made", "type", "key", "tries"),
    )
    if page.after is not None:
        render.note(f"There is more. Go on with: --after {page.after}")


@group.command()
def show(
    event_id: Annotated[UUID, typer.Argument()],
    *,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Where one event stands: its open deliveries and its receipts."""
    story = using_schema(open_app(app, database), lambda opened: opened.insight.event(event_id))
    if json:
        names = ("event_id", "type", "key", "correlation_id", "created_at")
        about = {name: getattr(story.event, name) for name in names}
        render.json({**about, "deliveries": story.deliveries, "receipts": story.receipts})
    else:
        show_story(story)


def _add_action(action: str, summary: str) -> None:
    """The three actions are said in the same way."""

    @group.command(action, help=summary)
    def command(
        ids: Ids = None,
        *,
        reason: Reason,
        actor: Actor = None,
        status: OfStatus = None,
        type: OfType = None,
        destination: OfDestination = None,
        key: OfKey = None,
        since: Since = None,
        until: Until = None,
        everything: Everything = False,
        dry_run: DryRun = False,
        json: AsJson = False,
        app: AppRef = None,
        database: Database = None,
    ) -> None:
        filters = {
            "status": status,
            "type": type,
            "destination": destination,
            "key": key,
            "since": since,
            "until": until,
        }
        choice = choose(action, ids, filters, everything=everything)
        perform(choice, open_app(app, database), reason, actor, dry_run=dry_run, json=json)


_add_action("requeue", "Try dead letters again, with a fresh budget of attempts.")
_add_action("discard", "Give deliveries up for good; the receipt says by whom.")
_add_action("bury", "Make open deliveries dead letters now.")


def show_story(story: EventStory) -> None:
    """Deliveries and receipts of an event, for people."""
    event = story.event
    render.say(f"{event.event_id}  {event.type}  {render.moment(event.created_at)}  key {event.key or '-'}")
    rows: list[tuple[object, ...]] = [
        (one.destination, one.status, one.attempts, one.available_at, one.error) for one in story.deliveries
    ]
    rows += [(one.destination, one.outcome, one.attempts, one.settled_at, _proof(one.actor)) for one in story.receipts]
    if rows:
        render.table(("destination", "status", "tries", "at", "note"), rows)
    else:
        render.say("It has no delivery: it was only recorded.")


def _stats_row(one: DestinationView, *, is_unserved: bool) -> tuple[object, ...]:
    state = "nobody serves it" if is_unserved else "served" if one.lanes_owned else "idle"
    if one.paused_at is not None:
        state = f"paused by {one.paused_by}: {one.reason}"
    opened, dead = sum(one.open.values()), one.open.get("dead", 0)
    return one.name, opened, dead, render.age_text(one.oldest_due_seconds), state


def _proof(actor: str | None) -> str | None:
    return None if actor is None else f"by {actor}"
