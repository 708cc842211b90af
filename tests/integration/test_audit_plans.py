"""The look for records that are not linked, once a second, does not read the history, however long it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from postlude.storage import statements
from postlude.storage.sqlite.store import PACKAGE
from tests.engine import make_app, query
from tests.integration.test_plans import MODES, explain

HISTORY = 50_000
RECENT = 60
"""Records a minute."""
FILL = f"""
    INSERT INTO postlude_audit (id, at, actor, action, target, reason)
    SELECT md5(n::text)::uuid, now() - ({HISTORY} - n) * interval '1 second', 'ann', 'requeue', n::text, ''
      FROM generate_series(1, {HISTORY}) AS n;
    INSERT INTO postlude_audit_link (position, audit_id, row_hash, hash) OVERRIDING SYSTEM VALUE
    SELECT n, md5(n::text)::uuid, '', '' FROM generate_series(1, {HISTORY}) AS n;
"""


@pytest.fixture
async def filled_url(any_postgres_url: str) -> str:
    for statement in FILL.split(";")[:2]:
        await query(any_postgres_url, statement)
    for table in ("postlude_audit", "postlude_audit_link"):
        await query(any_postgres_url, f"ANALYZE {table}")
    return any_postgres_url


@MODES
async def test_recent_records_are_found_by_their_time(filled_url: str, mode: str) -> None:
    async with make_app(filled_url) as app:
        now = await app.store.records.now()
        assert await app.store.audits.recent(reach=RECENT, limit=1000) == []
    plan = await explain(filled_url, mode, "audit_recent", since=now - timedelta(seconds=RECENT), limit=1000)
    assert "postlude_audit_at" in plan.indexes
    assert plan.touched <= 4 * RECENT, "each of the last minute, and a probe for its link"
    last = await explain(filled_url, mode, "audit_last", ahead=timedelta(0))
    assert last.touched <= 2


@MODES
async def test_a_stretch_of_history_and_a_page_of_the_chain_are_bounded(filled_url: str, mode: str) -> None:
    values: dict[str, Any] = {"limit": 500, "older_than": timedelta(0), "ahead": timedelta(0)}
    async with make_app(filled_url) as app:
        now = await app.store.records.now()
    middle = now - timedelta(seconds=HISTORY // 2)
    place = (await query(filled_url, "SELECT max(id::text)::uuid FROM postlude_audit"))[0][0]
    stretch = await explain(filled_url, mode, "audit_look", at=middle, id=place, **values)
    assert stretch.touched <= 4 * 500
    ids = [row[0] for row in await query(filled_url, "SELECT id FROM postlude_audit LIMIT 1000")]
    under_lock = await explain(filled_url, mode, "audit_to_link", ids=ids)
    assert under_lock.touched <= 4 * len(ids)
    page = await explain(filled_url, mode, "audit_chain", after=HISTORY // 2, limit=500)
    assert page.touched <= 4 * 500


@pytest.mark.parametrize("name", ["audit_recent", "audit_look", "audit_records"])
def test_sqlite_reads_by_time(sqlite_url: str, name: str) -> None:
    sql = statements.load(PACKAGE)[name].sql
    values: dict[str, Any] = {"since": 1.0, "limit": 9, "at": 1.0, "id": b"", "now": 1.0, "older_than": 0.0}
    values |= dict.fromkeys(("target", "actor", "action", "until", "after"))
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    if name == "audit_records":
        assert any("USING INDEX postlude_audit_at" in step for step in plan), "newest first without sorting"
    else:
        assert any(
            "INDEX postlude_audit_at (at>?" in step or "INDEX postlude_audit_at ((at,id)>" in step for step in plan
        ), plan
    assert not any(step.startswith(("SCAN postlude_audit_link", "SCAN l")) for step in plan), plan
