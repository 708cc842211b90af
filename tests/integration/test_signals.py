"""Workers as processes: stopped, continued, told to end."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests import worker_process
from tests.engine import LANES, key_in, note, query, until
from tests.owning import is_empty, lanes_of, owners
from tests.worker_process import WorkerProcess

QUICK = {
    "lane": {"lease": 1.0},
    "handler": {"timeout": 15.0, "concurrency": 10},
    "pool": {"max": 15},
    "worker": {"shutdown_timeout": 1.0},
}
STOPPED = [f"stop-{n}" for n in range(10)]


@pytest.mark.parametrize("end", ["SIGCONT", "idle timeout"])
async def test_sigstop_inside_a_handler_transaction_holds_only_its_key_and_has_its_effect_once(
    any_postgres_url: str, end: str
) -> None:
    """As many handlers as a worker runs at a time are frozen with their transactions open."""
    await query(any_postgres_url, worker_process.EFFECTS)
    app = worker_process.make_app(any_postgres_url, QUICK)
    async with app:
        with WorkerProcess(any_postgres_url, **QUICK) as frozen:
            await frozen.says("ready")
            for key in STOPPED:
                await note(app, key, 1, 2)
            await frozen.says_all(f"inside {key}" for key in STOPPED)
            frozen.send(signal.SIGSTOP)

            async with app.worker() as worker:
                await until(lambda: len(lanes_of(worker, "handler:effect")) == LANES)
                others = [key_in(lane) for lane in range(LANES)]
                for key in others:
                    await note(app, key, 1)
                await until(lambda: _count(any_postgres_url, len(others)), patience=10)
                assert await _effects(any_postgres_url, STOPPED) == []

                if end == "SIGCONT":
                    frozen.send(signal.SIGCONT)
                    frozen.send(signal.SIGUSR1)
                await until(lambda: _count(any_postgres_url, len(others) + 2 * len(STOPPED)), patience=30)
                effects = await _effects(any_postgres_url, STOPPED)
                assert sorted(effects) == sorted((key, n) for key in STOPPED for n in (1, 2))
                assert all(effects.index((key, 1)) < effects.index((key, 2)) for key in STOPPED)
                await until(lambda: is_empty(any_postgres_url))
        assert sum((await app.insight.counts()).values()) == 0


async def test_sigterm_ends_within_its_deadline_and_gives_lanes_back(any_postgres_url: str) -> None:
    hanging = {**QUICK, "handler": {"timeout": 120}}
    await query(any_postgres_url, worker_process.EFFECTS)
    app = worker_process.make_app(any_postgres_url, {})
    async with app:
        with WorkerProcess(any_postgres_url, **hanging) as process:
            await process.says("ready")
            await note(app, "stop", 1)
            await process.says("inside stop")
            process.send(signal.SIGTERM)
            await process.says("ended")
            assert await process.ends(within=30) == 0, "the deadline is one second; the rest is a slow machine"
        assert await app.insight.workers() == []
        assert set((await owners(any_postgres_url, "handler:effect")).values()) == {None}
        assert await query(any_postgres_url, "SELECT sum(crashes) FROM postlude_lane") == [(0,)]
        assert (await app.insight.counts())["pending"] == 1, "what did not end is left to the next owner, unharmed"


async def test_a_second_sigterm_ends_at_once(any_postgres_url: str) -> None:
    await query(any_postgres_url, worker_process.EFFECTS)
    app = worker_process.make_app(any_postgres_url, {})
    patient = {**QUICK, "worker": {"shutdown_timeout": 120}, "handler": {"timeout": 120}}
    async with app:
        with WorkerProcess(any_postgres_url, **patient) as process:
            await process.says("ready")
            await note(app, "stop", 1)
            await process.says("inside stop")
            process.send(signal.SIGTERM)
            await until(lambda: _second_signal(process))
            assert process.process.returncode == 130


def _second_signal(process: WorkerProcess) -> bool:
    """The first may not have been taken in yet; then the next one is the second."""
    if process.process.poll() is None:
        process.send(signal.SIGTERM)
    return process.process.poll() is not None


async def _count(url: str, wanted: int) -> bool:
    ((effects,),) = await query(url, "SELECT count(*) FROM effect")
    return int(effects) >= wanted


async def _effects(url: str, keys: list[str]) -> list[tuple[Any, ...]]:
    rows = await query(url, "SELECT key, n FROM effect ORDER BY position")
    return [row for row in rows if row[0] in keys]
