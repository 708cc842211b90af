"""`postlude outbox`: open and settled deliveries, and what an operator does with them."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

import typer

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.acting import ACTIONS, Choice, act, would_change
from postlude.cli.loading import open_app, require_schema, using
from postlude.cli.moments import parse_moment
from postlude.cli.options import (
    Actor,
    AppRef,
    AsJson,
    Database,
    OfDestination,
    OfKey,
    OfStatus,
    OfType,
    Reason,
    Since,
    Until,
)
from postlude.errors import ConfigurationError
from postlude.insight.insight import DestinationView, EventStory, Page, filter_of

group = typer.Typer(help="Deliveries: stats, list, show, requeue, discard, bury.", no_args_is_help=True)

Ids = Annotated[list[UUID] | None, typer.Argument(metavar="EVENT_ID", help="Events; or give filters instead.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
Everything = Annotated[bool, typer.Option("--all", help="Needed when neither ids nor filters are given.")]


@group.command()
def stats(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Open work by status and destination."""

    async def work(opened: Postlude) -> tuple[dict[str, int], list[DestinationView], dict[str, int]]:
        await require_schema(opened)
        insight = opened.insight
        return await insight.counts(), await insight.destinations(), await insight.unserved()

    counts, destinations, unserved = using(open_app(app, database), work)
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
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option("--after", help="Where the last page ended.")] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Deliveries, oldest first: the open ones, or with --status sent or discarded the settled ones."""
    moments = parse_moment(since), parse_moment(until)

    async def work(opened: Postlude) -> Page:
        await require_schema(opened)
        return await opened.insight.list(
            status, type, key, destination=destination, since=moments[0], until=moments[1], limit=limit, after=after
        )

    page = using(open_app(app, database), work)
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
        render.note(f"There is more: --after {page.after}")


@group.command()
def show(
    event_id: Annotated[UUID, typer.Argument()],
    *,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Where one event stands: its open deliveries and its receipts."""

    async def work(opened: Postlude) -> EventStory:
        await require_schema(opened)
        return await opened.insight.event(event_id)

    story = using(open_app(app, database), work)
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
        filters = {"status": status, "type": type, "key": key, "since": since, "until": until}
        choice = _choice(action, ids, destination, filters, everything=everything)
        _perform(choice, open_app(app, database), reason, actor, dry_run=dry_run, json=json)


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


def actor_name(given: str | None) -> str:
    """Who acts: as given, or the user and host of this process."""
    if given is not None:
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _choice(
    action: str, ids: list[UUID] | None, destination: str | None, given: Mapping[str, str | None], *, everything: bool
) -> Choice:
    """What is meant: ids, or a filter, or explicitly everything."""
    filters = {name: value for name, value in given.items() if value is not None}
    if ids and filters:
        raise ConfigurationError(
            f"ids and --{next(iter(filters))} were both given",
            hint="Name events, or filter; --destination goes with both.",
        )
    if not (ids or filters or destination or everything):
        raise ConfigurationError(f"nothing says what to {action}", hint="Give event ids or filters, or --all.")
    moments = {name: parse_moment(given.get(name)) for name in ("since", "until")}
    which = filter_of(**{**given, **moments, "destination": destination})
    return Choice(action, None if not ids else tuple(ids), which)


def _perform(choice: Choice, app: Postlude, reason: str, actor: str | None, *, dry_run: bool, json: bool) -> None:
    async def work(opened: Postlude) -> list[UUID]:
        await require_schema(opened)
        if dry_run:
            return await would_change(opened.insight, choice)
        return await act(opened.actions, choice, actor=actor_name(actor), reason=reason)

    changed = using(app, work)
    overtaken = choice.action == "requeue" and app.settings.order.on_dead == "skip" and bool(changed)
    remark = "Under order.on_dead = skip, requeued entries come after what followed them in their key."
    if json:
        answer = {"action": choice.action, "dry_run": dry_run, "changed": len(changed), "events": changed}
        render.json({**answer, "notes": [remark] if overtaken else []})
    else:
        past = ACTIONS[choice.action].past
        events = "1 event" if len(changed) == 1 else f"{len(changed):,} events"
        render.say(f"{events} would be {past}." if dry_run else f"{events} {past}.")
        if overtaken:
            render.note(remark)
    raise typer.Exit(0 if changed else 1)


def _stats_row(one: DestinationView, *, is_unserved: bool) -> tuple[object, ...]:
    state = "nobody serves it" if is_unserved else "served" if one.lanes_owned else "idle"
    if one.paused_at is not None:
        state = f"paused by {one.paused_by}: {one.reason}"
    opened, dead = sum(one.open.values()), one.open.get("dead", 0)
    return one.name, opened, dead, render.age_text(one.oldest_due_seconds), state


def _proof(actor: str | None) -> str | None:
    return None if actor is None else f"by {actor}"
