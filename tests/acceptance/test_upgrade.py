"""The first release and the code of this tree on one database: together, one after the other, and back again."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from random import Random

import pytest

from postlude.storage.migrate import load
from tests.acceptance.chaos_app import EFFECTS, Called, Moved, make_app
from tests.acceptance.chaos_books import assert_in_order, assert_nothing_lost, assert_once, effects, receipts, traces
from tests.acceptance.chaos_load import Load
from tests.acceptance.chaos_run import ROOT, Storm, until
from tests.acceptance.upgrade_sides import PATIENCE, Side, stop, unpacked
from tests.acceptance.upgrade_writer import SEED, add
from tests.conftest import ON_POSTGRES, ON_SQLITE
from tests.databases import finish
from tests.engine import query

OLD, NEW = "0.1.0", version("postlude")
PAUSE = (0.1, 0.4)
# A call that a kill has cut off is made again after its timeout and 15 seconds. So each database meets that once: here
# or on the way back.
ONE_FILE = ({"keys": 10, "each": 15, "calls": 0}, ["old", "new"], 1)
A_SERVER = ({"keys": 40, "each": 15, "calls": 4}, ["old", "old", "new", "new"], 2)
"""How much each version appends, who is killed while both work, and how many workers each has."""
SHARE = 24
"""Of 64 lanes; with two versions each has half of them, sooner or later."""
APP = "tests.acceptance.chaos_worker:app"
NEWEST = [(step.number, step.phase) for step in load("postlude.storage.sqlite")]
"""Both dialects have the same steps."""


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Where the first release can be imported from; it is really that one."""
    path = unpacked(tmp_path_factory.mktemp("release"))
    side = Side("asked", "sqlite:///none.db", tmp_path_factory.mktemp("sides"), path)
    assert finish(side.do("version")).strip() == f"postlude {OLD}"
    return path


@pytest.fixture(params=[*ON_SQLITE, *ON_POSTGRES[:1]])
def url(request, databases_on):
    """Empty."""
    return databases_on(request.param).fresh(schema=False)


@pytest.fixture
async def old(url, release, tmp_path):
    """The first release, with its schema and with a table for effects."""
    side = Side("old", url, tmp_path, release)
    await side.do("db", "upgrade")
    await query(url, EFFECTS["sqlite" if url.startswith("sqlite") else "postgres"])
    return side


@pytest.fixture
def new(url, tmp_path):
    return Side("new", url, tmp_path)


@asynccontextmanager
async def opened(new):
    """The app of this tree in this process, which only appends and looks."""
    app = make_app(new.environment["POSTLUDE_DATABASE"], new.traces)
    try:
        await app.start()
        yield app
    finally:
        await app.close()


async def steps(url) -> list[tuple[object, ...]]:
    return await query(url, "SELECT number, phase FROM postlude_migration ORDER BY number")


async def has_share(url, fleet) -> bool:
    """Do processes of the fleet that live own enough lanes to get some of whatever is appended?"""
    pids = {str(place.pid) for place in fleet.places if place.is_running}
    owned: Counter[str] = Counter()
    sql = "SELECT l.destination, w.name FROM postlude_lane l JOIN postlude_worker w ON w.id = l.owner"
    for destination, name in await query(url, sql):
        owned[destination] += name.rpartition(":")[2] in pids
    return min(owned["default"], owned["handler:effect"]) >= SHARE


async def all_decided(app) -> bool:
    counts = await app.insight.counts()
    return bool(sum(counts.values()) == counts["dead"])


async def work_here(app, *versions) -> bool:
    return {worker.version for worker in await app.insight.workers()} == set(versions)


async def check_books(app, sides, moved, called) -> None:
    """Nothing is lost, effects happened once, keys kept their order: over both versions."""
    assert not (await app.insight.list(status="dead")).items
    happened = await effects(app)
    assert_nothing_lost(happened, moved)
    assert_once(happened)
    assert_in_order(happened)
    for name, appended in (("published", moved), ("called", called)):
        seen = sorted((one for side in sides for one in traces(side.traces, name)), key=lambda trace: trace.at)
        assert_nothing_lost(seen, appended)
        assert_in_order(seen)
    proofs = {"default": len(moved), "handler:effect": len(moved), "handler:call": len(called)}
    assert await receipts(app) == Counter(proofs)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_old_and_new_workers_share_the_work_and_die_together(url, old, new) -> None:
    size, harms, count = ONE_FILE if url.startswith("sqlite") else A_SERVER
    harms = Random(SEED).sample(harms, len(harms))
    first, fleet, joining = old.writer(parts=len(harms) + 2, **size), old.fleet(count), new.fleet(count)
    fleets = {"old": fleet, "new": joining}
    storms = {kind: Storm(one, SEED, freeze=(0, 0), pause=PAUSE) for kind, one in fleets.items()}

    def tend() -> None:
        fleet.tend()
        joining.tend()

    with first, fleet:
        first.release()
        await storms["old"].strike("kill")  # one that was at work, before anything is upgraded
        first.release()
        if not url.startswith("sqlite"):  # there new code does it by itself
            assert "0002_pre_operating" in await new.do("db", "upgrade", "--phase", "pre")
        async with opened(new) as app:
            assert (await steps(url))[-1][1] == "pre"
            load = Load(app, seed=SEED, parts=len(harms))
            add(load, **size, prefix="new-")
            with joining:
                for part, kind in enumerate(harms):
                    # Else the others might do all of the part before the victim has any of it.
                    await until(lambda: has_share(url, fleets[kind]), seconds=PATIENCE, meanwhile=tend)  # noqa: B023
                    first.release()
                    load.release(part)
                    await storms[kind].strike("kill")
                    tend()
                fleet.calm()
                joining.calm()
                await load.finish()
                moved, called = await first.finish()
                moved |= load.appended(Moved)
                called |= load.appended(Called)
                await until(lambda: all_decided(app), seconds=PATIENCE, meanwhile=tend)
                await check_books(app, (old, new), moved, called)
                await until(lambda: work_here(app, OLD, NEW), seconds=PATIENCE, meanwhile=tend)
                assert sum(place.deaths for place in (*fleet.places, *joining.places)) == len(harms) + 1
                stop(fleet)
                await new.do("db", "upgrade", "--phase", "post")
                late = Load(app, seed=SEED + 1, parts=1)
                late.add(Moved, keys=10, each=5, writers=1, prefix="late-")
                await late.finish()
                await until(lambda: all_decided(app), seconds=PATIENCE, meanwhile=joining.tend)
                await check_books(app, (old, new), moved | late.appended(Moved), called)
                await new.do("db", "verify")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_old_workers_go_on_with_what_new_ones_left_behind(url, old, new) -> None:
    """The way back: no step of the schema is undone, because old code does not mind a `pre` step that it does not know."""
    await new.do("db", "upgrade", "--phase", "pre")
    leaving, staying = new.fleet(1), old.fleet(1)
    async with opened(new) as app:
        load = Load(app, seed=SEED, parts=2)
        add(load, keys=10, each=10, calls=2 if url.startswith("sqlite") else 0, prefix="new-")
        with leaving:
            load.release(0)
            # Killed in the middle of it: claimed lanes, and calls of unknown outcome.
            await Storm(leaving, SEED, freeze=(0, 0), pause=PAUSE).strike("kill")
            await load.finish()
            later = await scheduled(app)
        with staying:
            moved, called = load.appended(Moved) | later, load.appended(Called)
            await until(lambda: all_decided(app), seconds=PATIENCE, meanwhile=staying.tend)
            await check_books(app, (old, new), moved, called)
            await until(lambda: work_here(app, OLD), seconds=PATIENCE, meanwhile=staying.tend)


async def scheduled(app):
    """What new code appends for later, of a key of its own."""
    soon = datetime.now(UTC) + timedelta(seconds=2)
    async with app.transaction() as tx:
        return {await app.outbox.append(tx, Moved(key="later", n=1), available_at=soon): ("later", 1)}


def test_a_step_that_was_released_never_changes(release) -> None:
    steps_of_it = sorted((release / "postlude" / "storage").glob("*/migrations/*.sql"))
    assert len(steps_of_it) == 2
    for step in steps_of_it:
        assert (ROOT / "src" / step.relative_to(release)).read_text() == step.read_text(), step.name


@pytest.mark.slow
async def test_old_code_refuses_a_schema_that_lost_what_it_needs(url, old) -> None:
    await query(url, "INSERT INTO postlude_migration (number, phase, name) VALUES (2, 'pre', 'more')")
    await old.do("db", "status")
    await query(url, "INSERT INTO postlude_migration (number, phase, name) VALUES (3, 'post', 'less')")
    for command in (("run", APP), ("db", "upgrade")):
        refused = await old.call(*command)
        assert refused.returncode == 1, (command, refused)
        assert "the schema is at version 3, this Postlude knows 1" in refused.stderr
        assert "upgrade this process too" in refused.stderr


@pytest.mark.slow
async def test_new_code_says_what_to_run_before_it(url, old, new) -> None:
    if url.startswith("sqlite"):  # an embedded file has no operator
        async with opened(new):
            assert await steps(url) == NEWEST
        return
    refused = await new.call("run", APP)
    assert refused.returncode == 1, refused
    assert "the schema is at version 1, this Postlude needs 0002_pre_operating" in refused.stderr
    assert "postlude db upgrade --phase pre" in refused.stderr
    assert await steps(url) == [(1, "pre")]
    await new.do("db", "upgrade", "--phase", "pre")
    async with opened(new):
        assert await steps(url) == NEWEST
