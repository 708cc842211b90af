"""Two versions of Postlude on one database: the first release from its wheel, and the code of this tree."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self
from uuid import UUID
from zipfile import ZipFile

from tests.acceptance.chaos_load import Appended
from tests.acceptance.chaos_run import ROOT, Fleet
from tools.processes import bound

RELEASE = ROOT / "tests" / "releases" / "postlude-0.1.0-py3-none-any.whl"
WORKER = {"POSTLUDE_LANE__LEASE": "2", "POSTLUDE_POOL__MAX": "8", "POSTLUDE_HANDLER__CONCURRENCY": "4"}
PATIENCE = 150.0


class Side:
    """One version: its commands, its workers, its appends."""

    def __init__(self, name: str, url: str, folder: Path, path: Path | None = None) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.traces = self.folder / "traces"
        self.traces.mkdir()
        self._environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (path or ROOT / "src", ROOT))),
            "POSTLUDE_DATABASE": url,
            "CHAOS_TRACES": str(self.traces),
            **WORKER,
        }

    async def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`postlude ...`, to its end."""
        command = [sys.executable, "-m", "postlude.cli.main", *arguments]
        return await asyncio.to_thread(
            subprocess.run, bound(command), env=self.environment, cwd=self.folder, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    async def do(self, *arguments: str) -> str:
        """The same; it must succeed."""
        done = await self.call(*arguments)
        assert done.returncode == 0, f"{self.name}: {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def fleet(self, count: int) -> Fleet:
        return Fleet(count, self.folder, **self._environment)

    def writer(self, *, parts: int, keys: int, each: int, calls: int) -> WriterProcess:
        command = ["-m", "tests.acceptance.upgrade_writer", *map(str, (parts, keys, each, calls)), f"{self.name}-"]
        return WriterProcess([sys.executable, *command], self.environment, self.folder)

    @property
    def environment(self) -> dict[str, str]:
        # What a developer has set for himself must not reach in.
        own = {name: value for name, value in os.environ.items() if not name.startswith("POSTLUDE_")}
        return {**own, **self._environment}


def unpacked(folder: Path) -> Path:
    """The first release, where Python can import it."""
    with ZipFile(RELEASE) as wheel:
        wheel.extractall(folder)
    return folder


class WriterProcess:
    """A process that appends a part when it is told to."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            bound(command, death_signal="KILL"),
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def release(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    async def finish(self) -> tuple[Appended, Appended]:
        """Let it append what is left: what was written in transactions, and what was called for."""
        said, _ = await asyncio.to_thread(self._process.communicate, timeout=PATIENCE)
        assert self._process.returncode == 0
        moved, called = (
            {UUID(id_): (key, n) for id_, (key, n) in book.items()} for book in json.loads(said.splitlines()[-1])
        )
        return moved, called

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # a test that fails leaves no open pipe to the next one
            pass


def stop(fleet: Fleet) -> None:
    """In order, as a deployment does."""
    for place in fleet.places:
        place.signal(signal.SIGTERM)
    for place in fleet.places:
        assert place.wait(PATIENCE) == 0, place.output()
