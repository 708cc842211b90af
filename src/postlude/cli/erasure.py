"""`postlude erasure`: how far requests of data subjects are, and trying abandoned calls again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated
from uuid import UUID

import typer

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.acting import actor_name
from postlude.cli.erasure_lint import lint
from postlude.cli.erasure_show import (
    Reveal,
    ShownCall,
    look_at,
    print_calls,
    print_requests,
    print_subject,
    recorded,
    reveal_of,
    shown,
)
from postlude.cli.loading import open_app, using_schema
from postlude.cli.options import Actor, AppRef, AsJson, Database, Limit, Reason
from postlude.core.calls import Call

group = typer.Typer(
    help="Erasures and rectifications: stats, list, show, abandoned, scheduled, overdue, requeue.",
    no_args_is_help=True,
)
group.command("lint")(lint)

RevealThem = Annotated[
    bool, typer.Option("--reveal", help="Show whom calls are about. Needs --reason, and is audited.")
]
RevealReason = Annotated[str | None, typer.Option("--reason", help="Why they are revealed.")]


@group.command()
def stats(*, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Calls by status, and what is overdue."""

    async def work(opened: Postlude) -> tuple[dict[str, int], dict[str, int]]:
        gauges = await opened.erasure.gauges()
        late = {"requests": gauges["postlude_erasures_overdue"], "calls": gauges["postlude_calls_overdue"]}
        return await opened.erasure.status_counts(), late

    counts, late = using_schema(open_app(app, database), work)
    if json:
        render.json({"calls": counts, "overdue": late})
        return
    render.table(("status", "calls"), list(counts.items()))
    render.say(f"Overdue: {_many(late['requests'], 'request')} with {_many(late['calls'], 'open call')}.")


@group.command("list")
def list_(
    *,
    limit: Limit = 100,
    after: Annotated[UUID | None, typer.Option("--after", help="The id where the last page ended.")] = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Requests, newest first. Subjects stand there by pseudonym."""
    found = using_schema(open_app(app, database), lambda opened: opened.erasure.list(limit=limit, after=after))
    following = found[-1].id if len(found) == limit else None
    if json:
        render.json({"items": found, "after": following})
        return
    if not found:
        render.say("No request of a data subject is known." if after is None else "No more requests.")
        return
    print_requests(found)
    if following is not None:
        render.note(f"There is more. Go on with: --after {following}")


@group.command()
def show(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject's id, or the pseudonym of a list.")],
    *,
    reveal: RevealThem = False,
    reason: RevealReason = None,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """One subject: its requests, the calls that are open, and the trail. Exit 1: nothing is known of it."""
    asked = reveal_of(reveal=reveal, reason=reason, actor=actor)
    found = using_schema(open_app(app, database), lambda opened: look_at(opened, subject, asked))
    if json:
        render.json(found)
    elif found.requests:
        print_subject(found)
    else:
        render.say("Nothing was ever asked about this subject.")
        render.note("`postlude erasure list` shows what was asked, by pseudonym.")
    raise typer.Exit(0 if found.requests else 1)


@group.command()
def abandoned(
    *,
    reveal: RevealThem = False,
    reason: RevealReason = None,
    actor: Actor = None,
    limit: Limit = 100,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Calls that nobody makes any more, the oldest first."""
    asked = reveal_of(reveal=reveal, reason=reason, actor=actor)
    found = _calls(open_app(app, database), asked, lambda opened: opened.erasure.list_abandoned(limit))
    if json:
        render.json({"items": found})
    elif not found:
        render.say("No call is abandoned.")
    else:
        print_calls(found, when="enqueued_at")
        _tell_of_more(found, limit)
        render.note("When the cause is gone: postlude erasure requeue ID... --reason ...")


@group.command()
def scheduled(
    *,
    reveal: RevealThem = False,
    reason: RevealReason = None,
    actor: Actor = None,
    limit: Limit = 100,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Calls that wait until a vendor has let the data expire, the nearest first."""
    asked = reveal_of(reveal=reveal, reason=reason, actor=actor)
    found = _calls(open_app(app, database), asked, lambda opened: opened.erasure.list_scheduled(limit))
    if json:
        render.json({"items": found})
    elif not found:
        render.say("No call waits for a vendor.")
    else:
        print_calls(found, when="next_attempt_at")
        _tell_of_more(found, limit)


@group.command()
def overdue(*, limit: Limit = 100, json: AsJson = False, app: AppRef = None, database: Database = None) -> None:
    """Requests past their deadline, the longest first. Exit 1: there are some."""
    found = using_schema(open_app(app, database), lambda opened: opened.erasure.overdue(limit))
    if json:
        render.json({"items": found})
    elif found:
        print_requests(found)
        _tell_of_more(found, limit)
        render.note("What one waits for: postlude erasure show SUBJECT")
    else:
        render.say("No request is overdue.")
    raise typer.Exit(1 if found else 0)


@group.command()
def requeue(
    ids: Annotated[list[UUID], typer.Argument(metavar="ID", help="Of calls; `postlude erasure abandoned` shows them.")],
    *,
    reason: Reason,
    actor: Actor = None,
    json: AsJson = False,
    app: AppRef = None,
    database: Database = None,
) -> None:
    """Have abandoned erasures tried again; what is not abandoned is left alone. Exit 1: nothing changed."""

    async def work(opened: Postlude) -> list[Call]:
        changed = await opened.erasure.requeue(ids, actor=actor_name(actor), reason=reason)
        if changed:
            await opened.store.hint()
        return changed

    changed = [one.entry_id for one in using_schema(open_app(app, database), work)]
    skipped = [one for one in dict.fromkeys(ids) if one not in changed]
    if json:
        render.json({"action": "requeue", "changed": len(changed), "entries": changed, "skipped": skipped})
    else:
        render.say(f"{_many(len(changed), 'call')} requeued.")
        if skipped:
            render.note(f"Left alone, because not abandoned: {', '.join(map(str, skipped))}")
    raise typer.Exit(0 if changed else 1)


def _calls(app: Postlude, asked: Reveal | None, listed: Callable[[Postlude], Awaitable[list[Call]]]) -> list[ShownCall]:
    """Masked, unless asked otherwise; that is recorded first."""

    async def work(opened: Postlude) -> list[ShownCall]:
        await recorded(opened, None, asked)
        return shown(await listed(opened), revealed=asked is not None)

    return using_schema(app, work)


def _tell_of_more(found: Sequence[object], limit: int) -> None:
    if len(found) == limit:
        render.note("There may be more: raise --limit.")


def _many(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"
