"""What an operator's action is aimed at, doing it with progress, and what is said of it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import typer

from postlude.app import Postlude
from postlude.cli import progress, render
from postlude.cli.loading import using_schema
from postlude.cli.moments import between
from postlude.core.redaction import is_redacted
from postlude.errors import ConfigurationError, NotFound
from postlude.insight.bulk import STATUSES
from postlude.insight.insight import filter_of
from postlude.ports.operating import Operation
from postlude.ports.records import Filter

PAST = {"requeue": "requeued", "discard": "discarded", "bury": "buried", "replay": "replayed", "reseal": "sealed again"}
SHOWN = 10
"""Of what would change, or was changed by a filter, so many are named."""
OVERTAKEN = "Under order.on_dead = skip, requeued entries come after what followed them in their key."


class Choice(msgspec.Struct, frozen=True):
    """An action on events by id (narrowed to a destination), or on what a filter says. A replay goes `to` somewhere."""

    action: str
    ids: tuple[UUID, ...] | None
    which: Filter
    to: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What was changed, or would be."""

    changed: int
    events: Sequence[UUID]
    operation: Operation | None = None
    rows: Sequence[Mapping[str, Any]] = ()


def choose(
    action: str,
    ids: Sequence[UUID] | None,
    filters: Mapping[str, str | None],
    *,
    everything: bool,
    to: str | None = None,
) -> Choice:
    """What is meant: ids, or a filter, or explicitly everything."""
    given = {name: value for name, value in filters.items() if value is not None}
    apart = [name for name in given if name != "destination" or action == "replay"]
    if ids and apart:
        both = "" if action == "replay" else "; --destination goes with both"
        raise ConfigurationError(f"ids and --{apart[0]} were both given", hint=f"Name events, or filter{both}.")
    if not (ids or given or everything):
        raise ConfigurationError(f"nothing says what to {action}", hint="Give event ids or filters, or --all.")
    since, until = between(filters.get("since"), filters.get("until"))
    return Choice(action, tuple(ids) if ids else None, filter_of(**{**filters, "since": since, "until": until}), to)


def perform(choice: Choice, app: Postlude, reason: str, actor: str | None, *, dry_run: bool, json: bool) -> None:
    """Do it and say what came of it; exit 1 when nothing changed."""

    async def work(opened: Postlude) -> Outcome:
        if choice.to is not None:
            await opened.actions.require_replayable(choice.to, actor_name(actor), reason)
        if choice.ids is not None:
            return await (_would_change(opened, choice) if dry_run else _by_ids(opened, choice, reason, actor))
        await opened.start()
        planned = await opened.actions.bulk.plan(
            choice.action, choice.which, actor=actor_name(actor), reason=reason, to=choice.to
        )
        return await (_preview(opened, planned) if dry_run else _in_bulk(opened, planned))

    outcome = using_schema(app, work)
    overtaken = choice.action == "requeue" and app.settings.order.on_dead == "skip" and outcome.changed > 0
    if json:
        operation = outcome.operation and outcome.operation.id
        answer = {"action": choice.action, "dry_run": dry_run, "changed": outcome.changed, "events": outcome.events}
        render.json({**answer, "operation": operation, "notes": [OVERTAKEN] if overtaken else []})
    else:
        _say(choice, outcome, dry_run=dry_run)
        if overtaken:
            render.note(OVERTAKEN)
    raise typer.Exit(0 if outcome.changed else 1)


def actor_name(given: str | None) -> str:
    """Who acts: as given, or the user and host of this process."""
    if given is not None:
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


async def _by_ids(app: Postlude, choice: Choice, reason: str, actor: str | None) -> Outcome:
    who, ids = actor_name(actor), choice.ids or ()
    if choice.to is not None:
        await app.start()
        changed = await app.actions.replay(ids, to=choice.to, actor=who, reason=reason)
    else:
        act = {"requeue": app.actions.requeue, "discard": app.actions.discard, "bury": app.actions.bury}[choice.action]
        changed = await act(ids, destination=choice.which.destination, actor=who, reason=reason)
    return Outcome(len(changed), changed)


async def _in_bulk(app: Postlude, planned: Operation) -> Outcome:
    with progress.of_operation() as told:
        ended, changed = await app.actions.bulk.start(planned, told)
    await app.store.hint()
    return Outcome(ended.done, changed[:SHOWN], ended if ended.created_at is not None else None)


async def _preview(app: Postlude, planned: Operation) -> Outcome:
    rows = (await app.actions.bulk.preview(planned, SHOWN)).rows[:SHOWN]
    return Outcome(planned.total, list(dict.fromkeys(row["event_id"] for row in rows)), rows=rows)


async def _would_change(app: Postlude, choice: Choice) -> Outcome:
    """By ids, as far as it can be told without doing it."""
    fitting: list[UUID] = []
    made: list[tuple[UUID, datetime]] = []
    for event_id in choice.ids or ():
        try:
            story = await app.insight.event(event_id)
        except NotFound:
            continue
        made.append((event_id, story.event.created_at))
        if choice.to is not None:
            fits = not is_redacted(story.event.headers) and all(
                one.destination != choice.to for one in story.deliveries
            )
        else:
            wanted = (None, *(one.destination for one in story.deliveries if one.status in STATUSES[choice.action]))
            fits = choice.which.destination in wanted and len(wanted) > 1
        if fits:
            fitting.append(event_id)
    if choice.to is not None:
        await app.actions.window.require_events(choice.to, made)
    return Outcome(len(set(fitting)), list(dict.fromkeys(fitting)))


def _say(choice: Choice, outcome: Outcome, *, dry_run: bool) -> None:
    one, many = ("event", "events") if choice.ids is not None or choice.to is not None else ("delivery", "deliveries")
    what = f"1 {one}" if outcome.changed == 1 else f"{outcome.changed:,} {many}"
    if outcome.rows:
        names = [name for name in ("event_id", "type", "destination", "status", "key") if name in outcome.rows[0]]
        titles = ["event" if name == "event_id" else name for name in names]
        render.table(titles, [[row[name] for name in names] for row in outcome.rows], optional=titles[1:2])
        if outcome.changed > len(outcome.rows):
            render.note(f"and {outcome.changed - len(outcome.rows):,} more")
    to = f" to {choice.to}" if choice.to is not None else ""
    render.say(f"{what} would be {PAST[choice.action]}{to}." if dry_run else f"{what} {PAST[choice.action]}{to}.")
