"""Calls and requests as an operator sees them: whom they are about is masked unless it is asked for, on record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.acting import actor_name
from postlude.core.calls import Call, CallOperation
from postlude.core.lifecycle import Status
from postlude.core.pseudonym import TARGET
from postlude.erasure.views import ErasureView
from postlude.errors import ConfigurationError

KEPT, SHORT = 2, 4
"""Characters of a masked value that stay, and the length up to which none does."""
TRAIL = 1_000
STANDING = ("request", "run", "status", "done", "asked", "deadline", "completed")
_PSEUDONYM = re.compile(r"[0-9a-f]{32}")


class Reveal(msgspec.Struct, frozen=True):
    """Who wants to see whom calls are about, and why."""

    actor: str
    reason: str


class ShownCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call. `subject` is the pseudonym; `subject_id` and the whole of `ref` are there when revealed."""

    entry_id: UUID
    resolver: str
    operation: CallOperation
    subject: str | None
    subject_id: str | None
    ref: Mapping[str, Any]
    status: Status
    attempts: int
    last_error: str | None
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    enqueued_at: datetime


class ShownSubject(msgspec.Struct, frozen=True, kw_only=True):
    """One subject: its requests, the calls that are open, and what the audit trail says."""

    subject: str
    requests: Sequence[ErasureView]
    calls: Sequence[ShownCall]
    trail: Sequence[Mapping[str, Any]]


def reveal_of(*, reveal: bool, reason: str | None, actor: str | None) -> Reveal | None:
    if not reveal:
        return None
    if reason is None or not reason.strip():
        raise ConfigurationError("--reveal needs a --reason", hint="Who looked, and why, stands in the audit record.")
    return Reveal(actor_name(actor), reason)


async def recorded(app: Postlude, subject: str | None, asked: Reveal | None) -> None:
    """On record before anything is seen."""
    if asked is None:
        return
    await app.start()
    async with app.transaction() as tx:
        await app.erasure.record_reveal(tx, subject, actor=asked.actor, reason=asked.reason)


def shown(calls: Sequence[Call], *, revealed: bool) -> list[ShownCall]:
    return [_shown(one, revealed=revealed) for one in calls]


async def look_at(app: Postlude, given: str, asked: Reveal | None) -> ShownSubject:
    """By the pseudonym that lists and the audit trail show, or by the subject's id."""
    looks_hashed = bool(_PSEUDONYM.fullmatch(given))
    story = await app.erasure.show(given, is_pseudonym=looks_hashed)
    if looks_hashed and not story.requests:  # somebody's ids may look like that
        story = await app.erasure.show(given)
    if story.calls:
        await recorded(app, story.subject, asked)
    trail = await app.insight.audits(target=TARGET + story.subject, limit=TRAIL)
    return ShownSubject(
        subject=story.subject,
        requests=story.requests,
        calls=shown(story.calls, revealed=asked is not None),
        trail=trail[::-1],
    )


def print_calls(calls: Sequence[ShownCall], *, when: str, dispensable: Sequence[str] = ("status",)) -> None:
    """What was revealed gives way to nothing: it is on record that it was seen."""
    rows = [
        (
            one.entry_id,
            one.resolver,
            one.operation,
            one.ref["value"],
            one.subject_id or one.subject,
            one.status,
            one.attempts,
            getattr(one, when),
            one.last_error,
        )
        for one in calls
    ]
    title = {"next_attempt_at": "until", "enqueued_at": "since"}[when]
    columns = ("id", "resolver", "call", "ref", "subject", "status", "tries", title, "error")
    is_revealed = any(one.subject_id is not None for one in calls)
    masked = () if is_revealed else ("ref", "subject")
    render.table(columns, rows, optional=(*dispensable, "call", "tries", *masked, title))


def print_requests(requests: Sequence[ErasureView]) -> None:
    rows = [(one.id, one.subject, *_standing(one)) for one in requests]
    columns = ("id", "subject", *STANDING)
    render.table(columns, rows, optional=("id", "run", "asked", "completed", "request"))


def print_subject(found: ShownSubject) -> None:
    render.say(f"subject {found.subject}")
    rows = [(one.id, *_standing(one)) for one in found.requests]
    render.table(("id", *STANDING), rows, optional=("asked", "run", "id"))
    if found.calls:
        print_calls(found.calls, when="enqueued_at", dispensable=())
    else:
        render.say("No call is open.")
    trail = [(one["at"], one["action"], one["actor"], _detail(one)) for one in found.trail]
    render.table(("at", "action", "actor", "detail"), trail, optional=("actor",))


def _shown(call: Call, *, revealed: bool) -> ShownCall:
    seen = msgspec.structs.asdict(call)
    ref = msgspec.structs.asdict(call.ref) if revealed else {"kind": call.ref.kind, "value": _masked(call.ref.value)}
    return ShownCall(**{**seen, "ref": ref, "subject_id": call.subject_id if revealed else None})


def _masked(value: str) -> str:
    return "…" if len(value) <= SHORT else value[:KEPT] + "…"


def _standing(one: ErasureView) -> tuple[object, ...]:
    given_up = f", {one.discarded:,} given up" if one.discarded else ""
    done = f"{one.calls - one.open:,} of {one.calls:,}{given_up}"
    return one.operation, one.generation, one.status, done, one.created_at, one.deadline, one.completed_at


def _detail(record: Mapping[str, Any]) -> str:
    said = [f"{name} {value}" for name, value in record["detail"].items()]
    return ", ".join([*said, f"reason: {record['reason']}"] if record["reason"] else said)
