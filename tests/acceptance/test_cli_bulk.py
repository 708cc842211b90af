"""Bulk commands: a real process that is killed half-way, resumed, cancelled; dry runs; replays."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing

import asyncpg
import pytest

from tests.acceptance.cli_shop import ONE_OF_EACH, POISON, Answer, InProcess, end, finish, place, postlude, start
from tests.acceptance.obstacles import standing_in_the_way, wait_for
from tests.databases import Databases
from tests.engine import query

LETTERS = 20_500
"""More than twenty pages."""

# As a worker leaves them. Rows are born scheduled, for nothing is born dead.
FILL_POSTGRES = f"""
    INSERT INTO postlude_event (event_id, type, topic, payload)
    SELECT md5(n::text)::uuid, 'order.placed', 'orders', '{{}}' FROM generate_series(1, {LETTERS}) AS n;
    INSERT INTO postlude_delivery (event_id, destination, status)
    SELECT md5(n::text)::uuid, 'default', 'scheduled' FROM generate_series(1, {LETTERS}) AS n ORDER BY n;
    UPDATE postlude_delivery SET status = 'dead', attempts = 10
"""
FILL_SQLITE = f"""
    CREATE TEMP TABLE letter AS
        WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {LETTERS})
        SELECT n, randomblob(16) AS event_id FROM number;
    BEGIN;
    INSERT INTO postlude_event (event_id, type, topic, payload)
        SELECT event_id, 'order.placed', 'orders', CAST('{{}}' AS BLOB) FROM letter ORDER BY n;
    INSERT INTO postlude_delivery (event_id, destination, status)
        SELECT event_id, 'default', 'scheduled' FROM letter ORDER BY n;
    UPDATE postlude_delivery SET status = 'dead', attempts = 10;
    COMMIT;
"""
REQUEUE = ("outbox", "requeue", "--status", "dead", "--reason", "broker repaired", "--actor", "ann", "--json")


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], url: str) -> Callable[..., Answer]:
    run = InProcess(capsys)
    return lambda *arguments: run(*arguments, "--database", url)


def rows(url: str, sql: str) -> list[tuple[object, ...]]:
    return asyncio.run(query(url, sql))


@pytest.mark.timeout(300)
def test_a_requeue_that_is_killed_half_way_is_resumed_and_does_everything_once(url: str, ask) -> None:
    fill(url)
    with half_way(url) as is_half_way:
        process = start(*REQUEUE, "--database", url)
        try:
            wait_for(is_half_way, process)
        finally:
            process.kill()
        assert finish(process).code == -9
    (running,) = ask("operation", "list", "--status", "running", "--json").json["operations"]
    assert 0 < running["done"] < LETTERS
    assert (running["total"], running["filter"], running["actor"]) == (LETTERS, {"status": "dead"}, "ann")
    assert len(audited(url)) == running["done"], "what was counted is what was done"

    refused = ask(*REQUEUE)
    assert (refused.code, refused.json["error"]["code"]) == (1, "operation.running")
    assert refused.json["error"]["next"] == f"postlude operation resume {running['id']} --database {url}"

    resumed = postlude("operation", "resume", running["id"], "--json", "--database", url)
    assert resumed.code == 0, resumed
    assert (resumed.json["status"], resumed.json["done"]) == ("done", LETTERS)
    assert resumed.json["changed"] == LETTERS - running["done"]
    targets = audited(url)
    assert len(targets) == len(set(targets)) == LETTERS, "each exactly once"
    assert rows(url, "SELECT status, attempts, count(*) FROM postlude_delivery GROUP BY status, attempts") == [
        ("failed", 0, LETTERS)
    ]
    again = ask("operation", "resume", running["id"], "--json")
    assert (again.code, again.json["changed"]) == (1, 0)


@pytest.mark.timeout(300)
def test_a_discard_that_is_interrupted_says_how_to_go_on(any_postgres_url: str, capsys) -> None:
    url, run = any_postgres_url, InProcess(capsys)
    fill(url)
    with half_way(url) as is_half_way:
        process = start("outbox", "discard", "--status", "dead", "--reason", "old", "--database", url)
        try:
            wait_for(is_half_way, process)
            process.send_signal(signal.SIGINT)
            answer = finish(process)
        finally:
            end(process)
    (running,) = run("operation", "list", "--json", "--database", url).json["operations"]
    assert answer.code == 130
    assert f"Interrupted. Go on with: postlude operation resume {running['id']}" in answer.err
    assert "Traceback" not in answer.err
    cancelled = run("operation", "cancel", running["id"], "--reason", "kept after all", "--database", url, "--json")
    assert (cancelled.code, cancelled.json["status"]) == (0, "cancelled")
    left = rows(url, "SELECT count(*) FROM postlude_delivery WHERE status = 'dead'")[0][0]
    assert left == LETTERS - cancelled.json["done"]


def fill(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.executescript(FILL_SQLITE)
        return

    async def insert() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(FILL_POSTGRES)
        await connection.close()

    asyncio.run(insert())


def audited(url: str) -> list[object]:
    return [target for (target,) in rows(url, "SELECT target FROM postlude_audit WHERE action = 'requeue'")]


def half_way(url: str) -> AbstractContextManager[Callable[[], bool]]:
    return standing_in_the_way(url, "postlude_delivery", "seq", LETTERS // 2)


def test_a_dry_run_counts_and_names_the_first_ten(ask, url: str) -> None:
    ids = [str(one) for one in place(url, *[POISON] * 12)]
    dry = ask("outbox", "requeue", "--status", "dead", "--reason", "x", "--dry-run", "--json")
    assert (dry.code, dry.json["changed"], dry.json["events"], dry.json["operation"]) == (0, 12, ids[:10], None)
    people = ask("outbox", "discard", "--all", "--reason", "x", "--dry-run")
    assert "12 deliveries would be discarded." in people.out
    assert (ids[0] in people.out, ids[9] in people.out, ids[11] in people.out) == (True, True, False)
    assert "and 2 more" in people.err
    assert ask("operation", "list", "--json").json["operations"] == []
    assert ask("outbox", "stats", "--json").json["counts"]["dead"] == 12
    replay = ask("events", "replay", "--all", "--to", "default", "--reason", "x", "--dry-run", "--json")
    assert (replay.json["changed"], replay.json["events"]) == (12, ids[:10])


def test_events_are_replayed_by_ids_and_by_filter(ask, url: str) -> None:
    first, second = place(url, "lamp", "chair")
    replay = ("events", "replay", "--to", "default", "--reason", "receiver lost them", "--json")
    by_id = ask(*replay, str(first))
    assert (by_id.code, by_id.json["events"], by_id.json["operation"]) == (0, [str(first)], None)
    by_filter = ask(*replay, "--type", "order.placed", "--status", "sent", "--since", "1h")
    assert (by_filter.code, by_filter.json["changed"], by_filter.json["events"]) == (0, 1, [str(second)])
    assert ask(*replay, "--all").code == 1, "both are open there"
    shown = ask("operation", "show", by_filter.json["operation"], "--json").json
    assert (shown["action"], shown["destination"], shown["status"], shown["done"]) == ("replay", "default", "done", 1)
    assert [one["status"] for one in ask("outbox", "list", "--json").json["items"]] == ["pending", "pending"]
    nowhere = ask("events", "replay", "--all", "--to", "nowhere", "--reason", "x", "--json")
    assert (nowhere.code, nowhere.json["error"]["code"]) == (1, "insight.not_found")
    assert ask("events", "replay", "--to", "default", "--reason", "x", "--json").code == 2
    both = ask("events", "replay", str(first), "--destination", "default", "--to", "default", "--reason", "x")
    assert both.code == 2


def test_an_operation_is_cancelled_and_audited(ask, url: str) -> None:
    place(url, POISON)
    done = ask("outbox", "requeue", "--all", "--reason", "x", "--json").json
    cancel = ask("operation", "cancel", done["operation"], "--reason", "too late", "--json")
    assert (cancel.code, cancel.json["status"], cancel.json["changed"]) == (1, "done", False)
    listed = ask("operation", "list")
    assert (done["operation"] in listed.out, "1 of 1" in listed.out) == (True, True)
    audits = ask("audit", "list", "--action", "requeue", "--json").json
    assert [one["detail"]["operation"] for one in audits["items"]] == [done["operation"]]
    assert audits["after"] is None
    assert ask("audit", "list", "--since", "1h", "--limit", "1", "--json").json["after"] == audits["items"][0]["id"]
    assert ask("audit", "list", "--actor", "nobody", "--json").json["items"] == []
    assert "requeue" in ask("audit", "list").out
