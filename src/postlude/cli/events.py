"""`postlude events`: the log itself."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer

from postlude.app import Postlude
from postlude.cli import completing, progress, render
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
    OfDestination,
    OfKey,
    OfStatus,
    OfType,
    Reason,
    Since,
    Until,
)
from postlude.cli.outbox import show_story
from postlude.cli.revealing import Reveal, Revealing, Why
from postlude.cli.writing import Document, Lines, target_file
from postlude.core.delivery import StoredEvent
from postlude.core.masking import masked_payload
from postlude.insight.views import EventStory
from postlude.privacy.privacy import is_sealed

group = typer.Typer(help="Events: show one, replay and export many.", no_args_is_help=True)
TOLD_EVERY = 1000
DETAILS = ("topic", "version", "source", "entity", "correlation_id", "content_type")


@group.command()
def show(
    event_id: Annotated[UUID, typer.Argument()],
    *,
    reveal: Reveal = False,
    reason: Why = None,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """All of one event: what it says, masked, where it went, what caused it and what it caused."""
    revealing = Revealing(reveal=reveal, reason=reason, actor=actor)

    async def work(opened: Postlude) -> tuple[EventStory, StoredEvent]:
        story = await opened.insight.event(event_id)
        await revealing.audit(opened, str(event_id))
        return story, (await opened.privacy.opened([story.event]))[0] if reveal else story.event

    named = open_app(app, database)
    story, event = using_schema(named, work)
    if json:
        rest = {name: getattr(story, name) for name in ("deliveries", "receipts", "causes", "caused")}
        render.json({"event": event_json(event, masks=revealing.masks(named)), **rest})
        return
    show_story(story)
    rows: list[tuple[str, object]] = [(name, getattr(event, name)) for name in DETAILS]
    rows += [(f"header {name}", value) for name, value in event.headers.items()]
    rows += [("caused by", one) for one in story.causes] + [("caused", one) for one in story.caused]
    render.table(("what", "value"), rows)
    if revealing.masks(named):
        render.say(msgspec.json.encode(masked_payload(event)).decode())
        render.note("What it says is masked. To see it: --reveal --reason WHY")
    else:
        render.say(event.payload.decode("utf-8", "replace"))
        if reveal and is_sealed(event):
            render.note(
                "What is sealed in it cannot be opened here: its key is gone or unknown, or the seal is broken."
            )


@group.command()
def replay(
    ids: Annotated[list[UUID] | None, typer.Argument(metavar="EVENT_ID", help="Or give filters instead.")] = None,
    *,
    to: Annotated[
        str,
        typer.Option("--to", metavar="DESTINATION", help="Where they go.", autocompletion=completing.destinations),
    ],
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
    """Deliver stored events to one destination again, as new work, oldest first; what is open there is left alone."""
    filters = {"status": status, "type": type, "destination": destination, "key": key, "since": since, "until": until}
    choice = choose("replay", ids, filters, everything=everything, to=to)
    perform(choice, open_app(app, database), reason, actor, dry_run=dry_run, json=json)


@group.command()
def export(
    *,
    status: OfStatus = None,
    type: OfType = None,
    destination: OfDestination = None,
    key: OfKey = None,
    since: Since = None,
    until: Until = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Written whole or not at all.")
    ] = None,
    reveal: Reveal = False,
    reason: Why = None,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Every stored event that fits, masked, oldest first, as JSON lines; with --json and no file, as one JSON object."""
    revealing = Revealing(reveal=reveal, reason=reason, actor=actor)
    made_since, made_until = between(since, until)

    async def work(opened: Postlude) -> int:
        await revealing.audit(opened, "events")
        written, masks = 0, revealing.masks(opened)
        with target_file(output) as file, progress.of_count("events", is_wanted=output is not None) as told:
            form = Document(file, "events") if json and output is None else Lines(file)
            found = opened.insight.export(
                type=type, key=key, status=status, destination=destination, since=made_since, until=made_until
            )
            async for event in revealing.opened(opened, found):
                form.write(msgspec.json.encode(event_json(event, masks=masks)))
                written += 1
                if written % TOLD_EVERY == 0:
                    told(written)
            form.end(written)
        return written

    written = using_schema(open_app(app, database), work)
    if output is None:
        return
    if json:
        render.json({"exported": written, "output": str(output)})
    else:
        render.say(f"{written:,} events written to {output}")


def event_json(event: StoredEvent, *, masks: bool = False) -> dict[str, Any]:
    """An event with its payload in place: masked, or as the JSON it is, digit for digit, else as base64."""
    fields = msgspec.structs.asdict(event)
    payload = fields.pop("payload")
    if masks:
        return {**fields, "payload": masked_payload(event)}
    if event.content_type == "application/json":
        try:
            # Minified, so that a producer's line breaks cannot break a line of ours.
            text = msgspec.json.format(payload, indent=-1)
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return {**fields, "payload": msgspec.Raw(text)}
    return {**fields, "payload_base64": base64.b64encode(payload).decode()}
