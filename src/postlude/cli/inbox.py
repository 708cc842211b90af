"""`postlude inbox`: what consumers took from brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.loading import open_app, using_schema
from postlude.cli.moments import between
from postlude.cli.options import AppRef, AsJson, Database, Limit
from postlude.insight.consumers import ConsumerView, SeenView

group = typer.Typer(help="Consumers and the messages they have seen.", no_args_is_help=True)


@group.command()
def stats(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """What each consumer took, what became of it, and how far behind it is."""
    found = using_schema(open_app(app, database), lambda opened: opened.insight.consumers())
    if json:
        render.json({"consumers": found})
        return
    if not found:
        render.say("No consumer has joined a broker yet.")
        return
    columns = (
        "consumer", "received", "duplicates", "ignored", "unreadable", "open", "dead", "lag", "lag told", "last message",
    )  # fmt: skip
    optional = ("ignored", "last message", "duplicates")
    render.table(columns, [_stats_row(one) for one in found], optional=optional)
    if any(one.open is None for one in found):
        render.note("Open work and dead letters of a consumer are known to its app: --app MODULE:ATTR.")


@group.command("list")
def list_(
    *,
    consumer: Annotated[str | None, typer.Option("--consumer", help="Seen by this one.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Came from this topic.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Seen since: 2h, 7d, a date.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Seen before that.")] = None,
    limit: Limit = 100,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """What consumers have seen, newest first."""
    seen_since, seen_until = between(since, until)

    async def work(opened: Postlude) -> list[SeenView]:
        return await opened.insight.inbox(
            consumer=consumer, topic=topic, since=seen_since, until=seen_until, limit=limit
        )

    found = using_schema(open_app(app, database), work)
    if json:
        render.json({"items": found})
        return
    if not found:
        render.say("No message fits.")
        return
    rows = [(one.consumer, one.topic, one.received_at, one.event_id) for one in found]
    render.table(("consumer", "topic", "seen at", "event"), rows, optional=("topic", "seen at"))
    if len(found) == limit:
        render.note("There may be more: narrow it with filters, or raise --limit.")


def _stats_row(one: ConsumerView) -> tuple[object, ...]:
    told = None if one.lag_age_seconds is None else f"{render.age_text(one.lag_age_seconds)} ago"
    counts = (one.received, one.duplicates, one.ignored, one.unreadable, one.open, one.dead, one.lag)
    return one.name, *counts, told, one.last_at
