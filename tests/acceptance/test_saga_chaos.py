"""Real processes, killed with -9 at random: 2,000 sagas of four steps, a fifth of which fail, and some undos too.

Every saga ends as its script says, no effect happens twice, undos come in reverse order, and nothing is left open.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from postlude import Postlude
from tests.acceptance.chaos_run import PATIENCE, Fleet, Storm, until
from tests.acceptance.saga_chaos_app import CALL_TIMEOUT, EFFECTS, Ordered, make_app
from tests.acceptance.saga_chaos_script import PLAIN, TYPED, End, end_of, saga_of, script_of

SEED = int(os.environ.get("POSTLUDE_TEST_SEED", "20260115"))
SAGAS = 2000
TOGETHER = (1, 1, 2, 5, 10, 20)
"""Sagas that are started in one transaction."""
COMMAND = [sys.executable, "-m", "postlude.cli.main", "run", "tests.acceptance.saga_chaos_app:app"]
WORKER = {
    "POSTLUDE_LANE__LEASE": "2",
    "POSTLUDE_POOL__MAX": "24",
    "POSTLUDE_HANDLER__CONCURRENCY": "12",
    "POSTLUDE_HANDLER__TIMEOUT": str(CALL_TIMEOUT),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_three_workers_on_postgres(any_postgres_url, tmp_path, request) -> None:
    await run(any_postgres_url, tmp_path, request, workers=3, kills=12)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_workers_on_one_sqlite_file(sqlite_url, tmp_path, request) -> None:
    await run(sqlite_url, tmp_path, request, workers=2, kills=8)


async def run(url, folder, request, *, workers, kills) -> None:
    """A part of the sagas before each kill; then the calm, until all have ended, and the books."""
    timings = request.node.user_properties
    timings.append(("seed", SEED))
    fleet = Fleet(workers, folder, POSTLUDE_DATABASE=url, **WORKER)
    for place in fleet.places:
        place.command = COMMAND
    storm = Storm(fleet, SEED, freeze=(0, 0), pause=(0.1, 0.6))
    async with prepared(url, fleet) as shop:
        try:
            with fleet:
                began = time.monotonic()
                await shop.rage(storm, kills)
                timings.append(("storm_s", round(time.monotonic() - began, 1)))
                await shop.settle()
                timings.append(("all_s", round(time.monotonic() - began, 1)))
                await shop.check()
                assert sum(place.deaths for place in fleet.places) == kills
                assert await go_home(fleet) == [0] * workers
        except BaseException as error:
            error.add_note(f"POSTLUDE_TEST_SEED={SEED}; harms: {storm.done}")
            raise


async def go_home(fleet) -> list[int]:
    for place in fleet.places:
        place.signal(signal.SIGTERM)
    return [await asyncio.to_thread(place.wait, PATIENCE) for place in fleet.places]


@asynccontextmanager
async def prepared(url, fleet):
    """The app in this process, which only starts sagas and looks."""
    app, plain = make_app(url, fleet.traces)
    try:
        async with app.transaction() as tx:
            made = tx.execute(EFFECTS[app.store.dialect])
            if app.store.dialect == "postgres":
                await made
        yield Shop(app, plain, fleet)
    finally:
        await app.close()


class Shop:
    """Starts the sagas, and has the books."""

    def __init__(self, app: Postlude, plain: Any, fleet: Fleet) -> None:
        self._app = app
        self._plain = plain
        self._fleet = fleet
        self._random = Random(SEED)

    async def rage(self, storm: Storm, kills: int) -> None:
        """A kill comes when most of what was started has ended, so that it meets workers at work."""
        share = -(-SAGAS // (kills + 1))
        parts = [range(at, min(at + share, SAGAS)) for at in range(0, SAGAS, share)]

        async def mostly_done() -> bool:
            return bool(sum((await self._app.insight.counts()).values()) <= share // 2)

        for part in parts[:-1]:
            starting = asyncio.create_task(self._start(part))
            await storm.strike("kill")
            await starting
            await until(mostly_done, seconds=PATIENCE, meanwhile=self._fleet.tend)
        await self._start(parts[-1])
        self._fleet.calm()

    async def _start(self, numbers: range) -> None:
        left = list(numbers)
        while left:
            some, left = left[: (size := self._random.choice(TOGETHER))], left[size:]
            async with self._app.transaction() as tx:
                for number in some:
                    await self._start_one(tx, number)

    async def _start_one(self, tx: Any, number: int) -> None:
        script = script_of(SEED, number)
        if saga_of(number) == PLAIN:
            await self._app.sagas.start(tx, self._plain, script, id=script.number)
        else:
            trigger = Ordered(number=script.number, steps=script.steps, undos=script.undos)
            await self._app.outbox.append(tx, trigger)

    async def settle(self) -> None:
        """Until nothing is open. As long as something happens there is hope."""
        done = -1
        while True:
            before = done

            async def is_more() -> bool:
                nonlocal done
                done = (await self._fetch("SELECT count(*) FROM postlude_receipt"))[0][0]
                return bool(done > before) or await self._is_quiet()  # noqa: B023 - awaited in this round

            try:
                await until(is_more, seconds=PATIENCE, meanwhile=self._fleet.tend)
            except TimeoutError as error:
                error.add_note(f"still open: {(await self._app.insight.list(limit=20)).items}")
                raise
            if await self._is_quiet():
                return

    async def _is_quiet(self) -> bool:
        counts = await self._app.insight.counts()
        return bool(sum(counts.values()) == counts["dead"])

    # ------------------------------------------------------------ the books

    async def check(self) -> None:
        assert not (await self._app.insight.list(status="dead")).items
        wanted = {number: end_of(script_of(SEED, number), saga_of(number)) for number in range(SAGAS)}
        assert {(saga_of(number), end.status) for number, end in wanted.items()} == {
            (saga, status) for saga in (PLAIN, TYPED) for status in ("completed", "compensated", "stuck")
        }
        found = await self._ends()
        assert found.keys() == wanted.keys(), f"{len(found)} sagas"
        wrong = [
            f"{number}: {found[number]} instead of {end}" for number, end in wanted.items() if found[number] != end
        ]
        assert not wrong, f"{len(wrong)} sagas ended otherwise, such as {wrong[:5]}"
        await self._check_history(wanted)

    async def _ends(self) -> dict[int, End]:
        """With effects as they stand in the table: one twice, or in the wrong place, makes another list."""
        effects: dict[str, list[str]] = defaultdict(list)
        for saga, what in await self._fetch("SELECT saga, what FROM effect ORDER BY position"):
            effects[saga].append(what)
        rows = await self._fetch("SELECT name, process_id, status, error FROM postlude_saga WHERE generation = 1")
        ends = {
            int(process): End(status, error, tuple(effects.pop(f"{name} {process}", ())))
            for name, process, status, error in rows
        }
        assert not effects, f"effects of sagas that are not there: {list(effects)[:5]}"
        assert len(ends) == len(rows) == (await self._fetch("SELECT count(*) FROM postlude_saga"))[0][0]
        return ends

    async def _check_history(self, wanted: dict[int, End]) -> None:
        """Each end was written down once, also where a worker died between two attempts."""
        rows = await self._fetch("SELECT what, count(*) FROM postlude_saga_step GROUP BY what")
        told: dict[str, int] = dict(rows)
        ends = Counter(end.status for end in wanted.values())
        assert {what: told.get(what) for what in ends} == dict(ends)
        assert told["started"] == len(wanted)
        assert told["done"] + told["undone"] <= sum(len(end.effects) for end in wanted.values())

    async def _fetch(self, sql: str) -> list[tuple[Any, ...]]:
        async with self._app.transaction() as tx:
            rows = tx.execute(sql).fetchall() if self._app.store.dialect == "sqlite" else await tx.fetch(sql)
        return [tuple(row) for row in rows]
