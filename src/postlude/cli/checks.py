"""What `doctor` makes of what it found: facts in, findings out. Nothing here connects to anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from postlude.cli.render import age_text, bytes_text
from postlude.core.calls import PREFIX as CALLS
from postlude.core.event import EventSpec
from postlude.core.upcast import require_upcasts
from postlude.delivering import SPARE_CONNECTIONS
from postlude.errors import ConfigurationError
from postlude.inbox.consumers import PREFIX
from postlude.insight.consumers import ConsumerView
from postlude.insight.views import DestinationView
from postlude.ports.operating import Operation
from postlude.ports.ownership import LiveWorker
from postlude.ports.upkeep import SchemaStatus, TableUse
from postlude.settings import Settings

MAX_CLOCK_DIFFERENCE = 1.0
LATE, TOO_LATE = 60.0, 600.0
DAYS_AHEAD = 7
"""Nearer days are not made any more: while a range is attached, appends into it would be refused."""
EXTRA_CONNECTIONS = 2
"""Of a worker, beside its pool: one renews the lease, one listens."""
RESERVED_CONNECTIONS = 3
SHORT_LEASE = 5.0
SILENT = 60.0
"""A consumer that works tells its lag every few seconds."""


class Finding(msgspec.Struct, frozen=True):
    """What was looked at, how it is, and what to do next."""

    check: str
    status: Literal["ok", "warn", "fail"]
    message: str
    hint: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, on a database that can be reached and has a schema."""

    dialect: str
    server: dict[str, Any]
    settings: Settings
    has_memory_broker: bool
    destinations: list[DestinationView]
    workers: list[LiveWorker]
    unserved: dict[str, int]
    tables: list[TableUse] = []
    operations: list[Operation] = []
    consumers: list[ConsumerView] = []
    asked_at: datetime
    answered_at: datetime


def check_schema(status: SchemaStatus, problems: Sequence[str]) -> Finding:
    if status.version == 0:
        return Finding("schema", "fail", "it is not there", "Run `postlude db upgrade`.")
    if status.pending:
        what = f"pending: {', '.join(status.pending)}"
        if all("_post_" in step for step in status.pending):
            hint = "When no process of the old version is left: `postlude db upgrade --phase post`."
            return Finding("schema", "warn", what, hint)
        return Finding("schema", "fail", what, "Run `postlude db upgrade --phase pre`.")
    if status.lanes is None:
        return Finding("schema", "fail", "the number of lanes is not fixed yet", "Run `postlude db upgrade`.")
    if problems:
        return Finding(
            "schema", "fail", "; ".join(problems), "Compare with `postlude db sql`, or `postlude db verify`."
        )
    return Finding("schema", "ok", f"version {status.version}, {status.lanes} lanes")


def check_versions(handled: Sequence[EventSpec]) -> Iterator[Finding]:
    """Of the app's own classes: nothing to say when there are none."""
    if not handled:
        return
    try:
        require_upcasts(handled)
    except ConfigurationError as error:
        yield Finding("event versions", "fail", str(error.args[0]), error.hint)
    else:
        yield Finding("event versions", "ok", "every class that a handler takes can read its older versions")


def check_all(facts: Facts) -> list[Finding]:
    """Every finding but those on connection and schema, which come first."""
    found = [
        check_clock(facts),
        *check_server(facts),
        *check_settings(facts),
        check_workers(facts),
        *check_lanes(facts),
    ]
    found += check_consumers(facts)
    waiting = [check_unserved(facts), check_dead(facts), check_operations(facts), check_paused(facts), check_due(facts)]
    return [*found, *check_pool(facts), *waiting]


def check_clock(facts: Facts) -> Finding:
    now = facts.server["now"]
    # Somewhere between question and answer the database looked at its clock.
    off = max((facts.asked_at - now).total_seconds(), (now - facts.answered_at).total_seconds(), 0.0)
    if off > MAX_CLOCK_DIFFERENCE:
        hint = "Ids and --since go by this host's clock, leases by the database's: run NTP on both."
        return Finding("clock", "warn", f"this host and the database differ by {age_text(off)}", hint)
    return Finding("clock", "ok", "this host and the database agree")


def check_server(facts: Facts) -> Iterator[Finding]:
    server = facts.server
    if facts.dialect == "sqlite":
        size = server["page_size"] * server["page_count"]
        yield Finding("disk", "ok", f"{bytes_text(size)}, journal {server['journal_mode']}{_largest(facts)}")
        return
    if server.get("standby"):
        yield Finding("server", "fail", "it is a read-only standby", "Give the URL of the primary.")
    yield Finding("disk", "ok", f"{bytes_text(sum(one.bytes or 0 for one in facts.tables))}{_largest(facts)}")
    if server.get("is_pooled"):
        yield check_pooler(server)
    ahead = server.get("partitions_ahead_days")
    if ahead is None or ahead < DAYS_AHEAD:
        there = "there are none ahead" if ahead is None else f"the last one is {ahead} days ahead"
        hint = "Until there are, events go to the default partition: postlude maintenance run partitions"
        yield Finding("partitions", "warn", there, hint)
    else:
        yield Finding("partitions", "ok", f"made {ahead} days ahead")


def check_pooler(server: Mapping[str, Any]) -> Finding:
    """What follows from a pooler such as PgBouncer. Nothing is wrong with one."""
    what = "a pooler stands before PostgreSQL: statements are not prepared, new work is found by polling"
    if server.get("jit") != "off":
        hint = "Settings at connect do not get through. Once, as its owner: ALTER ROLE name SET jit = off"
        return Finding("pooler", "warn", f"{what}; jit is {server.get('jit')}, which makes reading slow at times", hint)
    return Finding("pooler", "ok", what)


def _largest(facts: Facts) -> str:
    """The three tables that take most; `doctor` shows them all below."""
    known = [f"{one.name.removeprefix('postlude_')} {bytes_text(one.bytes)}" for one in facts.tables if one.bytes]
    return f": {', '.join(known[:3])}" if known else ""


def check_settings(facts: Facts) -> Iterator[Finding]:
    settings, found = facts.settings, False
    if facts.has_memory_broker:
        found = True
        yield Finding(
            "settings", "warn", "the broker is memory://", "It forgets when the process ends: name a real broker."
        )
    if settings.lane.lease < SHORT_LEASE:
        found = True
        message = f"lane.lease is {settings.lane.lease:g} s"
        yield Finding(
            "settings", "warn", message, "A short pause of a worker would cost it its lanes; the default is 15."
        )
    if settings.errors.keep == "message":
        found = True
        yield Finding(
            "settings", "warn", "errors.keep is message", "Messages may hold personal data; `location` does not."
        )
    if not found:
        yield Finding("settings", "ok", "nothing unusual")


def check_workers(facts: Facts) -> Finding:
    if not facts.workers:
        return Finding("workers", "warn", "none is running", "Start one: postlude run shop:app")
    versions = sorted({worker.version for worker in facts.workers})
    names = ", ".join(worker.name for worker in facts.workers[:5])
    more = f" and {len(facts.workers) - 5} more" if len(facts.workers) > 5 else ""
    return Finding("workers", "ok", f"{len(facts.workers)} alive ({names}{more}), version {', '.join(versions)}")


def check_lanes(facts: Facts) -> Iterator[Finding]:
    served = {name for worker in facts.workers for name in worker.destinations}
    free = [one for one in facts.destinations if one.name in served and one.lanes_owned < one.lanes]
    for one in free:
        hint = "Free lanes are taken within a second, those of a crashed worker when its lease ends: look again."
        yield Finding("lanes", "warn", f"{one.name}: {one.lanes - one.lanes_owned} of {one.lanes} are free", hint)
    if not free:
        lanes, owned = (sum(getattr(one, name) for one in facts.destinations) for name in ("lanes", "lanes_owned"))
        crashes = sum(one.crashes for one in facts.destinations)
        lost = f"; workers that crashed lost {crashes} so far" if crashes else ""
        yield Finding(
            "lanes", "ok", f"{owned} of {lanes} owned{lost}" if lanes else "none yet: the first worker makes them"
        )


def check_consumers(facts: Facts) -> Iterator[Finding]:
    """Nothing to say where none ever joined a broker."""
    if not facts.consumers:
        return
    served = {name for worker in facts.workers for name in worker.destinations}
    troubles = [Finding("consumers", "warn", *said) for one in facts.consumers if (said := _silence(one, served))]
    yield from troubles
    if not troubles:
        lags = ", ".join(f"{one.name} {'?' if one.lag is None else f'{one.lag:,}'}" for one in facts.consumers)
        yield Finding("consumers", "ok", f"all are served; lag: {lags}")


def _silence(one: ConsumerView, served: set[str]) -> tuple[str, str] | None:
    """What is wrong with a consumer, and what to do."""
    told = "never" if one.lag_age_seconds is None else f"{age_text(one.lag_age_seconds)} ago"
    if PREFIX + one.name not in served:
        hint = "Run a worker whose app has it. If it is gone for good, delete its row from postlude_consumer."
        return f"{one.name}: no live worker takes its messages; its lag was last told {told}", hint
    if one.lag_age_seconds is None or one.lag_age_seconds > SILENT:
        hint = "Its worker runs, so look at its broker, and at postlude.consumer and postlude.outage in the log."
        return f"{one.name}: its lag was last told {told}", hint
    return None


def check_pool(facts: Facts) -> Iterator[Finding]:
    limit = facts.server.get("max_connections")
    if facts.dialect == "sqlite" or limit is None:
        return
    yield check_places(facts)
    if facts.server.get("is_pooled"):
        return  # how many connections reach the server is the pooler's to limit
    processes = max(1, len(facts.workers))
    each = facts.settings.pool.max + EXTRA_CONNECTIONS
    wanted, usable = processes * each, limit - RESERVED_CONNECTIONS
    sums = f"workers {processes} x ({facts.settings.pool.max} + {EXTRA_CONNECTIONS}) = {wanted} of {usable} connections"
    if wanted > usable:
        yield Finding("pool", "fail", sums, "Lower pool.max or raise max_connections: some workers could not connect.")
    elif wanted > usable * 0.8:
        yield Finding(
            "pool", "warn", sums, "Lower pool.max or raise max_connections: little is left for the app itself."
        )
    else:
        yield Finding("pool", "ok", sums)


def check_places(facts: Facts) -> Finding:
    """Transactional handlers hold a connection each, and never take the last ones."""
    pool, wanted = facts.settings.pool.max, facts.settings.handler.concurrency
    places = max(1, pool - SPARE_CONNECTIONS)
    sums = f"pool.max {pool} - {SPARE_CONNECTIONS} kept free = {places} transactional handlers at once"
    if places < min(wanted, 2):
        return Finding("handlers", "warn", sums, f"Raise pool.max to {wanted + SPARE_CONNECTIONS}: postlude settings")
    return Finding("handlers", "ok", f"{sums} in a process (handler.concurrency {wanted} for each handler)")


def check_operations(facts: Facts) -> Finding:
    if not facts.operations:
        return Finding("operations", "ok", "no bulk action is under way")
    what = ", ".join(f"{one.action} {one.done:,} of {one.total:,}" for one in facts.operations[:3])
    hint = f"If it was interrupted: postlude operation resume {facts.operations[0].id}"
    return Finding("operations", "warn", f"{len(facts.operations)} under way: {what}", hint)


def check_unserved(facts: Facts) -> Finding:
    """But calls, which have findings of their own."""
    unserved = {name: entries for name, entries in facts.unserved.items() if not name.startswith(CALLS)}
    if not unserved:
        return Finding("unserved", "ok", "all open work has a worker that serves it")
    what = ", ".join(f"{name} ({entries:,})" for name, entries in unserved.items())
    hint = "Run a worker whose app has these routes and handlers; if one was renamed, give it its old name= back."
    return Finding("unserved", "warn", f"open work that no live worker serves: {what}", hint)


def check_dead(facts: Facts) -> Finding:
    """But abandoned calls."""
    letters = {one.name: one.open.get("dead", 0) for one in facts.destinations if not one.name.startswith(CALLS)}
    dead = {name: entries for name, entries in letters.items() if entries}
    if not dead:
        return Finding("dead letters", "ok", "none")
    what = ", ".join(f"{name} ({entries:,})" for name, entries in dead.items())
    return Finding("dead letters", "warn", what, "See `postlude outbox list --status dead`, then requeue or discard.")


def check_paused(facts: Facts) -> Finding:
    paused = [f"{one.name} by {one.paused_by}: {one.reason}" for one in facts.destinations if one.paused_at]
    if not paused:
        return Finding("paused", "ok", "none")
    return Finding("paused", "warn", "; ".join(paused), "postlude destination resume NAME --reason ...")


def check_due(facts: Facts) -> Finding:
    oldest = max(facts.destinations, key=lambda one: one.oldest_due_seconds, default=None)
    seconds = 0.0 if oldest is None else oldest.oldest_due_seconds
    if oldest is None or seconds <= LATE:
        return Finding("oldest due", "ok", f"{age_text(seconds)}")
    hint = "Look at its errors (`postlude outbox list`), at its broker, or run more workers."
    return Finding(
        "oldest due", "fail" if seconds > TOO_LATE else "warn", f"{age_text(seconds)} for {oldest.name}", hint
    )
