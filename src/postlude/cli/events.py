"""`postlude events`: the log itself."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from uuid import UUID

import msgspec
import typer

from postlude.app import Postlude
from postlude.cli import completing, progress, render
from postlude.cli.acting import choose, perform
from postlude.cli.loading import open_app, require_schema, using
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
from postlude.core.delivery import StoredEvent
from postlude.errors import ConfigurationError
from postlude.insight.insight import EventStory

group = typer.Typer(help="Events: show one, replay and export many.", no_args_is_help=True)
TOLD_EVERY = 1000
DETAILS = ("topic", "version", "source", "entity", "correlation_id", "content_type")


@group.command()
def show(
    event_id: Annotated[UUID, typer.Argument()],
    *,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """All of one event: what it says, where it went, what caused it and what it caused."""

    async def work(opened: Postlude) -> EventStory:
        await require_schema(opened)
        return await opened.insight.event(event_id)

    story = using(open_app(app, database), work)
    if json:
        rest = {name: getattr(story, name) for name in ("deliveries", "receipts", "causes", "caused")}
        render.json({"event": event_json(story.event), **rest})
        return
    show_story(story)
    event = story.event
    rows: list[tuple[str, object]] = [(name, getattr(event, name)) for name in DETAILS]
    rows += [(f"header {name}", value) for name, value in event.headers.items()]
    rows += [("caused by", one) for one in story.causes] + [("caused", one) for one in story.caused]
    render.table(("what", "value"), rows)
    render.say(event.payload.decode("utf-8", "replace"))


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
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Every stored event that fits, oldest first, as JSON lines; with --json and no file, as one JSON object."""
    made_since, made_until = between(since, until)

    async def work(opened: Postlude) -> int:
        await require_schema(opened)
        written = 0
        with _target(output) as file, progress.of_count("events", is_wanted=output is not None) as told:
            form = _Document(file) if json and output is None else _Lines(file)
            found = opened.insight.export(
                type=type, key=key, status=status, destination=destination, since=made_since, until=made_until
            )
            async for event in found:
                form.write(msgspec.json.encode(event_json(event)))
                written += 1
                if written % TOLD_EVERY == 0:
                    told(written)
            form.end(written)
        return written

    written = using(open_app(app, database), work)
    if output is None:
        return
    if json:
        render.json({"exported": written, "output": str(output)})
    else:
        render.say(f"{written:,} events written to {output}")


class _Lines:
    """One event a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, event: bytes) -> None:
        self._file.write(event + b"\n")

    def end(self, written: int) -> None:
        """Nothing follows."""


class _Document:
    """One JSON object with all of them. It is begun with the first event, so that an error before it stands alone."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._before = b'{"events":['

    def write(self, event: bytes) -> None:
        self._file.write(self._before + event)
        self._before = b","

    def end(self, written: int) -> None:
        begun = b"" if written else self._before
        self._file.write(begun + b'],"exported":%d}\n' % written)


def event_json(event: StoredEvent) -> dict[str, Any]:
    """An event with its payload in place: as the JSON it is, digit for digit, else as base64."""
    fields = msgspec.structs.asdict(event)
    payload = fields.pop("payload")
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


@contextmanager
def _target(output: Path | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that appears under its name only when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        file = part.open("xb")
    except OSError as error:
        raise ConfigurationError(
            f"{output} cannot be written: {error.strerror}", hint="Choose another --output."
        ) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
