"""Processes of the relay and of the consuming service, killed at random times, and the broker's server between them."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Protocol

import psycopg

from tests.acceptance.broker_app import OFFICE, SHOP
from tests.acceptance.chaos_run import PATIENCE, Fleet, Place

RUN = [sys.executable, "-m", "postlude.cli.main", "run"]
APPS = {"relay": ("shop", SHOP), "consumer": ("office", OFFICE)}
EACH = 2
"""Processes of each kind."""

Kind = str
Harm = Kind | Callable[[], Awaitable[None]]


class Server(Protocol):
    """A broker's, at one address."""

    url: str

    def start(self) -> None: ...
    def kill(self) -> None: ...


class Process(Place):
    """One of the shop or of the office."""

    def __init__(self, kind: Kind, number: int, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(f"{kind} {number}", folder / f"{kind}{number}.log", environment, folder)
        self.kind = kind
        app, variable = APPS[kind]
        self.command = [*RUN, f"tests.acceptance.broker_app:{app}"]
        self._database = environment[variable]

    @property
    def has_delivered(self) -> bool:
        """It serves: to kill one before it has begun would prove nothing."""
        with psycopg.connect(self._database, autocommit=True) as connection:
            sql = "SELECT 1 FROM postlude_worker WHERE name LIKE %s"
            return connection.execute(sql, [f"%:{self.pid}"]).fetchone() is not None


class Company(Fleet):
    """All of them. Leaving the block kills all of them."""

    def __init__(self, folder: Path, **environment: str) -> None:
        super().__init__(0, folder, **environment)
        told = self.environment
        self.processes = [Process(kind, n, folder, told) for kind in APPS for n in range(1, EACH + 1)]
        self.places = list(self.processes)

    async def victim(self, kind: Kind, random: Random) -> Process:
        chosen = [process for process in self.processes if process.kind == kind]
        random.shuffle(chosen)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.tend()
            for process in chosen:
                if process.is_running and process.has_delivered:
                    return process
            await asyncio.sleep(0.05)
        raise TimeoutError(f"no {kind} has begun for {PATIENCE:g} s")

    async def go_home(self) -> list[int]:
        """End all of them in order; gives their exit codes."""
        for process in self.processes:
            process.signal(signal.SIGTERM)
        return [await asyncio.to_thread(process.wait, PATIENCE) for process in self.processes]


class Weather:
    """Kills, and one outage of the broker, when a seed says."""

    def __init__(self, company: Company, server: Server, seed: int, *, kills: int) -> None:
        self._company = company
        self._server = server
        self._random = Random(seed)
        kinds: list[Harm] = [*APPS] * (kills // len(APPS))
        self._random.shuffle(kinds)
        third = kills // 3
        self.before, self.during, self.after = kinds[:third], kinds[third : 2 * third], kinds[2 * third :]
        self.done: list[str] = []
        self._began = time.monotonic()

    @property
    def parts(self) -> int:
        """One of the load before each harm."""
        return len(self.before) + len(self.during) + len(self.after)

    async def strike(self, harm: Harm) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 1.0))
        await self._do(harm)

    async def outage(self, seconds: float, release: Callable[[], None]) -> None:
        """Away for so long, with harm meanwhile."""
        self._note("the broker is killed")
        self._server.kill()
        end = time.monotonic() + seconds
        left = sorted(self._random.uniform(0, seconds) for _ in self.during)
        for after, harm in zip(left, self.during, strict=True):
            release()
            await asyncio.sleep(max(0.0, end - seconds + after - time.monotonic()))
            await self._do(harm)
        await asyncio.sleep(max(0.0, end - time.monotonic()))
        self._server.start()
        self._note("the broker is back")

    async def _do(self, harm: Harm) -> None:
        if callable(harm):
            self._note(harm.__name__)
            await harm()
            return
        victim = await self._company.victim(harm, self._random)
        self._note(f"kill {victim.name}")
        victim.kill()
        self._company.tend()

    def _note(self, what: str) -> None:
        self.done.append(f"{time.monotonic() - self._began:.1f} {what}")
