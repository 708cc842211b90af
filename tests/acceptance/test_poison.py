"""An event that kills every worker which touches it: it becomes a dead letter, and takes nobody along."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from postlude import Postlude
from tests.acceptance.bomb_app import BOMB, Thing
from tests.engine import query

THINGS = 30


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_poisonous_event_becomes_a_dead_letter_and_the_innocent_are_handled(any_postgres_url: str) -> None:
    await query(any_postgres_url, "CREATE TABLE done (key text)")
    app = Postlude(any_postgres_url)
    app.on(Thing, name="thing")(_never)
    async with app:
        async with app.transaction() as tx:
            keys = [BOMB if n == THINGS // 2 else f"key-{n}" for n in range(THINGS)]
            await app.outbox.append_many(tx, [Thing(key=key) for key in keys])
        deaths = await _work_until_nothing_is_open(app, any_postgres_url)
        letters = (await app.insight.list(status="dead")).items
    assert [letter.key for letter in letters] == [BOMB]
    done = await query(any_postgres_url, "SELECT key FROM done")
    assert sorted(row[0] for row in done) == sorted(set(keys) - {BOMB})
    assert deaths >= 3


async def _never(_: Thing) -> None:
    raise AssertionError("this process only appends")


async def _work_until_nothing_is_open(app: Postlude, url: str) -> int:
    """Start a worker again and again, as a supervisor would. Gives how many died."""
    deaths = 0
    worker = _start(url)
    try:
        while True:
            counts = await app.insight.counts()
            if sum(counts.values()) == counts["dead"]:
                return deaths
            if worker.poll() is not None:
                deaths += 1
                worker = _start(url)
            await asyncio.sleep(0.05)
    finally:
        worker.kill()
        worker.wait()


def _start(url: str) -> subprocess.Popen[bytes]:
    given = {"POSTLUDE_DATABASE": url, "POSTLUDE_LANE__LEASE": "2"}
    command = [sys.executable, "-m", "postlude.cli.main", "run", "tests.acceptance.bomb_app:app"]
    return subprocess.Popen(command, env={**os.environ, **given}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
