"""Options that many commands share, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON object on stdout.")]
AppRef = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:ATTR", help="The app, such as shop:app; brings its own database.")
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="sqlite:///file.db or postgresql://...; by default POSTLUDE_DATABASE or postlude.toml.",
    ),
]

OfStatus = Annotated[str | None, typer.Option("--status", help="pending, claimed, failed, scheduled, dead, ...")]
OfType = Annotated[str | None, typer.Option("--type", help="Event type, such as order.placed.")]
OfDestination = Annotated[str | None, typer.Option("--destination", help="A broker's name, or handler:NAME.")]
OfKey = Annotated[str | None, typer.Option("--key", help="Ordering key.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Events made since: 2h, 7d, or an ISO date.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Events made before that.")]

Reason = Annotated[str, typer.Option("--reason", help="Why; it stands in the audit record.")]
Actor = Annotated[str | None, typer.Option("--actor", help="Who; by default user@host.")]
