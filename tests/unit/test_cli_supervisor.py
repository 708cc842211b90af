"""Children of `run --workers N`: who is started again, who is not, and who is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from postlude.cli import supervisor
from postlude.cli.supervisor import Supervisor


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(supervisor, "LONGEST_DELAY", 0.02)


def _python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", "-c", code, *arguments]


def _marks(folder: Path) -> int:
    return len(list(folder.iterdir()))


MARK = "import os, sys, time, signal; open(os.path.join(sys.argv[1], str(os.getpid())), 'w').close()\n"


async def _until_marked(folder: Path, count: int) -> None:
    async with asyncio.timeout(20):
        while _marks(folder) < count:
            await asyncio.sleep(0.01)


async def test_children_that_end_well_are_not_started_again(tmp_path: Path) -> None:
    kept = Supervisor(_python(MARK, str(tmp_path)), 3, deadline=30)
    assert await kept.run() == 0
    assert (_marks(tmp_path), kept.restarts) == (3, 0)


async def test_a_crashed_child_comes_back(tmp_path: Path) -> None:
    crash_twice = MARK + "sys.exit(0 if len(os.listdir(sys.argv[1])) > 2 else 7)"
    kept = Supervisor(_python(crash_twice, str(tmp_path)), 1, deadline=30)
    assert await kept.run() == 0
    assert (_marks(tmp_path), kept.restarts) == (3, 2)


async def test_a_child_that_refuses_to_start_ends_all(tmp_path: Path) -> None:
    first_refuses = MARK + "sys.exit(2) if len(os.listdir(sys.argv[1])) == 2 else time.sleep(60)"
    kept = Supervisor(_python(first_refuses, str(tmp_path)), 2, deadline=30)
    assert await kept.run() == 2
    assert kept.restarts == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all(tmp_path: Path, number: signal.Signals) -> None:
    running = asyncio.create_task(Supervisor(_python(MARK + "time.sleep(60)", str(tmp_path)), 2, deadline=30).run())
    await _until_marked(tmp_path, 2)
    os.kill(os.getpid(), number)
    assert await running == 0


DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + MARK + "time.sleep(60)"


async def test_a_deaf_child_is_killed_after_the_deadline(tmp_path: Path) -> None:
    running = asyncio.create_task(Supervisor(_python(DEAF, str(tmp_path)), 1, deadline=0.1).run())
    await _until_marked(tmp_path, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 1


async def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    running = asyncio.create_task(Supervisor(_python(DEAF, str(tmp_path)), 2, deadline=60).run())
    await _until_marked(tmp_path, 2)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 130
