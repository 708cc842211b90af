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
from rich.progress import Progress, SpinnerColumn, TextColumn

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.loading import open_app, require_schema, using
from postlude.cli.moments import parse_moment
from postlude.cli.options import AppRef, AsJson, Database, OfType, Since, Until
from postlude.cli.outbox import show_story
from postlude.core.delivery import StoredEvent
from postlude.errors import ConfigurationError
from postlude.insight.insight import EventStory

group = typer.Typer(help="Events: show one, export many.", no_args_is_help=True)
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
def export(
    *,
    since: Since = None,
    until: Until = None,
    type: OfType = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Written whole or not at all.")
    ] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Every stored event that fits, oldest first, as JSON lines."""
    moments = parse_moment(since), parse_moment(until)

    async def work(opened: Postlude) -> int:
        await require_schema(opened)
        written = 0
        with _target(output) as file, _progress(is_wanted=output is not None) as told:
            async for event in opened.insight.export(type=type, since=moments[0], until=moments[1]):
                file.write(msgspec.json.encode(event_json(event)) + b"\n")
                written += 1
                if written % TOLD_EVERY == 0:
                    told(written)
        return written

    written = using(open_app(app, database), work)
    if output is None:
        return
    if json:
        render.json({"exported": written, "output": str(output)})
    else:
        render.say(f"{written:,} events written to {output}")


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


@contextmanager
def _progress(*, is_wanted: bool) -> Iterator[Any]:
    console = render.stderr()
    if not (is_wanted and console.is_terminal):
        yield lambda _: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,} events"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("export", total=None)
        yield lambda written: progress.update(task, completed=written)
