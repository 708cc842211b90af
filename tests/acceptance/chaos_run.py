"""Real worker processes that are killed, stopped and started again, and always gone at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from tools.processes import bound

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "postlude.cli.main", "run", "tests.acceptance.chaos_worker:app"]
UNREACHABLE = 3
"""The exit code of a command that could not reach its database."""
PATIENCE = 150.0
TAIL = 3000
"""Characters of a worker's output that a failure shows."""


class EndedByItself(AssertionError):
    """A worker ended though nobody told it to."""


class Place:
    """Where a worker process lives; when it is killed, another one comes."""

    def __init__(self, name: str, log: Path, environment: Mapping[str, str], traces: Path) -> None:
        self.name = name
        self.log = log
        self._traces = traces
        self.frozen_until: float | None = None
        self.deaths = 0
        self.command = COMMAND
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self.frozen_until is None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                bound(self.command, death_signal="KILL"),
                env=self._environment,
                cwd=self.log.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int:
        """Its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def freeze(self, seconds: float) -> None:
        self.signal(signal.SIGSTOP)
        self.frozen_until = time.monotonic() + seconds

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
        self.frozen_until = None

    def kill(self) -> None:
        """SIGKILL, frozen or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self.frozen_until = None, None
            self.deaths += 1

    def check(self) -> None:
        """It lives, or it was killed, or it started while the database was away: nothing else may have happened."""
        if self._process is None or (code := self._process.poll()) is None:
            return
        if code != UNREACHABLE or self.has_delivered:
            raise EndedByItself(f"{self.name} (process {self.pid}) ended with exit code {code}")
        self._process = None

    @property
    def has_delivered(self) -> bool:
        """Since this process was started."""
        return any(path.stat().st_size for path in self._traces.glob(f"*-{self.pid}.trace"))

    def output(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- the end of what {self.name} said (in all {len(text)} characters)\n{text[-TAIL:]}"


class Fleet:
    """So many workers. Leaving the block kills all of them; after a failure it also shows what they said last."""

    def __init__(self, count: int, folder: Path, **environment: str) -> None:
        traces = folder / "traces"
        traces.mkdir(exist_ok=True)
        # What a developer has set for himself must not reach the workers.
        own = {name: value for name, value in os.environ.items() if not name.startswith("POSTLUDE_")}
        paths = os.pathsep.join(filter(None, (str(ROOT), own.get("PYTHONPATH"))))
        env = {**own, "PYTHONPATH": paths, "CHAOS_TRACES": str(traces), **environment}
        self.environment = env
        self.traces = traces
        self.places = [Place(f"worker {i}", folder / f"worker{i}.log", env, traces) for i in range(1, count + 1)]

    def __enter__(self) -> Self:
        for place in self.places:
            place.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in self.places:
            place.kill()
        if error is not None:
            for place in self.places:
                error.add_note(place.output())

    def tend(self, *, patience: float = 0.0) -> None:
        """Let those go on that were stopped long enough, and replace the dead."""
        for place in self.places:
            place.check()
            if place.frozen_until is not None and time.monotonic() >= place.frozen_until - patience:
                place.thaw()
            elif place._process is None:
                place.start()

    def calm(self) -> None:
        """Everybody lives and moves."""
        self.tend(patience=float("inf"))


class Storm:
    """Harm in an order that a seed decides."""

    def __init__(self, fleet: Fleet, seed: int, *, freeze: tuple[float, float], pause: tuple[float, float]) -> None:
        self._fleet = fleet
        self._random = Random(seed)
        self._freeze = freeze
        self._pause = pause
        self.done: list[str] = []

    def plan(self, *, kills: int, freezes: int) -> list[str]:
        """Kills and freezes shuffled."""
        harms = ["kill"] * kills + ["freeze"] * freezes
        self._random.shuffle(harms)
        return harms

    async def strike(self, harm: str | Callable[[], Awaitable[None]]) -> None:
        """Do one harm, after a pause. A function is a harm to something else than a worker."""
        await asyncio.sleep(self._random.uniform(*self._pause))
        self._fleet.tend()
        seconds = self._random.uniform(*self._freeze)
        if callable(harm):
            self.done.append(harm.__name__)
            await harm()
            return
        victim = await self._victim()
        self.done.append(f"{harm} {victim.name}")
        if harm == "kill":
            victim.kill()
        else:
            victim.freeze(seconds)

    async def _victim(self) -> Place:
        """A worker that works: to kill one before it has begun would prove nothing."""
        places = list(self._fleet.places)
        self._random.shuffle(places)
        deadline = time.monotonic() + PATIENCE
        while True:
            self._fleet.tend()
            for place in places:
                if place.is_running and place.has_delivered:
                    return place
            if time.monotonic() > deadline:
                raise TimeoutError(f"no worker has delivered anything for {PATIENCE:g} s")
            await asyncio.sleep(0.05)


async def until(
    condition: Callable[[], Awaitable[bool]], *, seconds: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Ask until it is so. Trouble with the database is what these tests make, so it only means: not yet."""
    deadline = time.monotonic() + seconds
    trouble: Exception | None = None
    while time.monotonic() < deadline:
        meanwhile()
        try:
            if await condition():
                return
        except Exception as error:  # noqa: BLE001 - shown when the time is over
            trouble = error
        await asyncio.sleep(0.25)
    raise TimeoutError(f"not so after {seconds:g} s") from trouble
