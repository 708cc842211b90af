"""`postlude run` on an app with PostgreSQL and SQLite together, and commands on either."""

from __future__ import annotations

import asyncio
from typing import Any

from postlude import Postlude
from tests.acceptance.cli_shop import end, finish, postlude, start
from tests.engine import query, until

REFERENCE = "tests.acceptance.several_app:app"
RECEIPTS = "SELECT count(*) FROM postlude_receipt"


def test_one_process_serves_both_databases(any_postgres_url: str, sqlite_url: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("SEVERAL_MAIN", any_postgres_url)
    monkeypatch.setenv("SEVERAL_EDGE", sqlite_url)
    asyncio.run(_append(any_postgres_url, sqlite_url))
    waiting = [
        postlude("outbox", "stats", "--json", "--app", REFERENCE, *which) for which in ((), ("--database", "edge"))
    ]
    assert [(answer.code, answer.json["counts"]["pending"]) for answer in waiting] == [(0, 1), (0, 2)]
    process = start("run", REFERENCE)
    try:
        asyncio.run(until(lambda: _is_done(any_postgres_url, sqlite_url)))
        process.terminate()
        answer = finish(process)
    finally:
        end(process)
    assert answer.code == 0
    assert sorted(answer.out.splitlines()) == ["noted edge-1", "noted edge-2", "noted main-1"]


def test_a_database_that_the_app_does_not_have_is_named(
    any_postgres_url: str, sqlite_url: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SEVERAL_MAIN", any_postgres_url)
    monkeypatch.setenv("SEVERAL_EDGE", sqlite_url)
    answer = postlude("outbox", "stats", "--app", REFERENCE, "--database", "egde")
    assert answer.code in (1, 2)
    assert "the app has no database named 'egde'" in answer.err
    assert "default, edge" in answer.err


async def _append(main: str, edge: str) -> None:
    from tests.acceptance.several_app import Noted

    app = Postlude(main, databases={"edge": edge})
    app.on(Noted, name="note")(lambda noted: None)
    await app.db.upgrade()
    async with app:
        for engine, key in (
            (app.engine, "main-1"),
            (app.databases["edge"], "edge-1"),
            (app.databases["edge"], "edge-2"),
        ):
            async with engine.transaction() as tx:
                await engine.outbox.append(tx, Noted(key=key))


async def _is_done(main: str, edge: str) -> bool:
    return (await query(main, RECEIPTS), await query(edge, RECEIPTS)) == ([(1,)], [(2,)])
