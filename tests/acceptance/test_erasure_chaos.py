"""Real processes, killed with -9 at random, and four vendors of whose answers a third fail, hang or get lost on the way.

Each vendor's effect happens at most once per idempotency key, each completion exactly once, and nothing stays open but
the calls that the script has abandoned.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import pytest

from postlude import Postlude, SubjectRef
from tests.acceptance.chaos_run import PATIENCE, Fleet, Storm, until
from tests.acceptance.erasure_chaos_app import KINDS, TABLE, VENDORS, make_app
from tests.vendor_server import VendorAdmin, vendor_process
from tests.vendors import Plan

SEED = int(os.environ.get("POSTLUDE_TEST_SEED", "20260116"))
PLAN = Plan(seed=SEED, rate=0.3, most=4, refused=0.03)
RETENTION = 2.0
"""Seconds after which the log vendor has forgotten."""
TOGETHER = 5
COMMAND = [sys.executable, "-m", "postlude.cli.main", "run", "tests.acceptance.erasure_chaos_app:app"]
WORKER = {
    "POSTLUDE_LANE__LEASE": "2",
    "POSTLUDE_POOL__MAX": "24",
    "POSTLUDE_CALLS__RETRY__MAX_ATTEMPTS": "30",
    "POSTLUDE_CALLS__RETRY__BASE_DELAY_SECONDS": "0.2",
    "POSTLUDE_CALLS__RETRY__MAX_BACKOFF_SECONDS": "1",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_three_workers_on_postgres(any_postgres_url, tmp_path, request) -> None:
    await run(any_postgres_url, tmp_path, request, workers=3, kills=8, subjects=500)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_workers_on_one_sqlite_file(sqlite_url, tmp_path, request) -> None:
    await run(sqlite_url, tmp_path, request, workers=2, kills=4, subjects=120)


async def run(url, folder, request, *, workers, kills, subjects) -> None:
    timings = request.node.user_properties
    timings.append(("seed", SEED))
    with vendor_process(PLAN, retention=RETENTION) as vendors:
        fleet = Fleet(workers, folder, POSTLUDE_DATABASE=url, **{VENDORS: vendors.url}, **WORKER)
        for place in fleet.places:
            place.command = COMMAND
        storm = Storm(fleet, SEED, freeze=(0, 0), pause=(0.1, 0.5))
        app = make_app(url, vendors.url, fleet.traces)
        office = Office(app, vendors, fleet, [f"subject-{number}" for number in range(subjects)])
        try:
            await office.prepare()
            with fleet:
                began = time.monotonic()
                await office.rage(storm, kills)
                await office.settle()
                timings.append(("all_s", round(time.monotonic() - began, 1)))
                await office.check()
                assert sum(place.deaths for place in fleet.places) == kills
                for place in fleet.places:
                    place.signal(signal.SIGTERM)
                assert [await asyncio.to_thread(place.wait, PATIENCE) for place in fleet.places] == [0] * workers
        except BaseException as error:
            error.add_note(f"POSTLUDE_TEST_SEED={SEED}; harms: {storm.done}; vendors: {vendors.told()}")
            raise
        finally:
            await app.close()


class Office:
    """Requests the erasures, and has the books."""

    def __init__(self, app: Postlude, vendors: VendorAdmin, fleet: Fleet, subjects: list[str]) -> None:
        self._app = app
        self._vendors = vendors
        self._fleet = fleet
        self._subjects = subjects

    async def prepare(self) -> None:
        for name, kind in KINDS.items():
            self._vendors.give(kind, name, self._subjects, {"email": "someone@example.com"})
        async with self._app.transaction() as tx:
            made = tx.execute(TABLE)
            if self._app.store.dialect == "postgres":
                await made

    async def rage(self, storm: Storm, kills: int) -> None:
        share = -(-len(self._subjects) // (kills + 1))
        parts = [self._subjects[at : at + share] for at in range(0, len(self._subjects), share)]
        for part in parts[:-1]:
            asking = asyncio.create_task(self._ask(part))
            await storm.strike("kill")
            await asking
        await self._ask(parts[-1])
        while len(storm.done) < kills:
            await storm.strike("kill")
        self._fleet.calm()

    async def _ask(self, subjects: list[str]) -> None:
        for at in range(0, len(subjects), TOGETHER):
            async with self._app.transaction() as tx:
                for subject in subjects[at : at + TOGETHER]:
                    refs = [SubjectRef(name, subject) for name in KINDS]
                    await self._app.erasure.erase_subject(tx, subject, refs, reason="asked for it")

    async def settle(self) -> None:
        """As long as something is settled there is hope: a call of unknown outcome waits for a while."""
        done = -1
        while not await self._is_quiet():
            before = done

            async def is_more() -> bool:
                nonlocal done
                done = (await self._fetch("SELECT count(*) FROM postlude_receipt"))[0][0]
                return bool(done > before) or await self._is_quiet()  # noqa: B023 - awaited in this round

            await until(is_more, seconds=PATIENCE, meanwhile=self._fleet.tend)

    async def _is_quiet(self) -> bool:
        counts = await self._app.insight.counts()
        return bool(sum(counts.values()) == counts["dead"])

    # ------------------------------------------------------------ the books

    async def check(self) -> None:
        doomed = {
            (name, subject) for name in KINDS for subject in self._subjects if PLAN.fate(name, subject) == "refused"
        }
        assert doomed, "the script abandons nothing"
        await self._check_vendors(doomed)
        await self._check_calls(doomed)
        await self._check_completions({subject for _, subject in doomed})

    async def _check_vendors(self, doomed: set[tuple[str, str]]) -> None:
        told = self._vendors.told()
        for fault in ("error", "hang", "lost", "lost_drop"):
            assert any(name.endswith(f" {fault}") for name in told), f"no answer was a {fault}: {told}"
        twice = {effect: times for effect, times in self._vendors.effects().items() if times > 1}
        assert not twice, f"{len(twice)} effects happened more than once, such as {list(twice.items())[:3]}"
        keys = self._vendors.keys()
        several = {whom: given for whom, given in keys.items() if len(given) != 1 and whom not in doomed}
        assert not several, f"calls came under several keys: {list(several.items())[:3]}"
        for name in KINDS:
            assert set(self._vendors.left(name)) - self._expired(name) == {
                subject for vendor, subject in doomed if vendor == name
            }

    def _expired(self, name: str) -> set[str]:
        """What a log vendor has promised to forget is gone whether or not it still lists it."""
        if KINDS[name] != "logs":
            return set()
        return {subject for subject in self._subjects if PLAN.fate(name, subject) == "erased"}

    async def _check_calls(self, doomed: set[tuple[str, str]]) -> None:
        left = await self._app.erasure.list_abandoned(limit=10_000)
        assert {(call.resolver, call.subject_id) for call in left} == doomed
        assert len(left) == len(doomed)
        assert {call.last_error for call in left} == {"ResolverError"}
        secrets = await self._fetch("SELECT part, count(*) FROM postlude_secret GROUP BY part")
        assert dict(secrets).get("subject") == len(doomed), "a secret outlived its call"
        assert "verification" not in dict(secrets)
        told = (
            "SELECT count(*), count(DISTINCT detail ->> 'entry_id') FROM postlude_audit WHERE action LIKE 'erasure_%'"
        )
        done = await self._fetch(told + " AND action = 'erasure_step_succeeded'")
        verified = await self._fetch(told + " AND action LIKE 'erasure_external_verif%'")
        assert verified == done == [(len(self._subjects) * len(KINDS) - len(doomed),) * 2], "each is verified once"
        failed = await self._fetch("SELECT count(*) FROM postlude_audit WHERE action = 'erasure_step_failed'")
        assert failed[0][0] == len(doomed)

    async def _check_completions(self, unfinished: set[str]) -> None:
        finished = len(self._subjects) - len(unfinished)
        completed = Counter(
            target
            for (target,) in await self._fetch("SELECT target FROM postlude_audit WHERE action = 'erasure_completed'")
        )
        assert len(completed) == finished
        assert set(completed.values()) == {1}
        told = Counter(group for (group,) in await self._fetch("SELECT completion FROM told"))
        assert len(told) == finished
        assert set(told.values()) == {1}
        groups = await self._fetch("SELECT open, completed_at IS NOT NULL FROM postlude_group")
        assert len(groups) == len(self._subjects)
        assert all((is_open == 0) == bool(done) for is_open, done in groups)

    async def _fetch(self, sql: str) -> list[tuple[Any, ...]]:
        async with self._app.transaction() as tx:
            rows = tx.execute(sql).fetchall() if self._app.store.dialect == "sqlite" else await tx.fetch(sql)
        return [tuple(row) for row in rows]
