"""Options that many commands share, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

from postlude.cli import completing

AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON object on stdout.")]
AppRef = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:ATTR", help="The app, such as shop:app; brings its own database.")
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL|NAME",
        help="sqlite:///file.db or postgresql://...; by default POSTLUDE_DATABASE or postlude.toml. With --app: the"
        " name of one of its databases.",
    ),
]

OfStatus = Annotated[
    str | None,
    typer.Option(
        "--status",
        help="pending, claimed, failed, scheduled, dead; sent, discarded.",
        autocompletion=completing.statuses,
    ),
]
OfType = Annotated[str | None, typer.Option("--type", help="Event type, such as order.placed.")]
OfDestination = Annotated[
    str | None,
    typer.Option("--destination", help="A broker's name, or handler:NAME.", autocompletion=completing.destinations),
]
OfKey = Annotated[str | None, typer.Option("--key", help="Ordering key.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Events made since: 2h, 7d, or an ISO date.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Events made before that.")]

Everything = Annotated[bool, typer.Option("--all", help="Needed when neither ids nor filters are given.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count and show what would change, and change nothing.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it stands in the audit record.")]
Actor = Annotated[str | None, typer.Option("--actor", help="Who; by default user@host.")]
