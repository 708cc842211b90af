"""A private Redis that writes every command to its log before it answers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.debian import Program, program, reachable
from tools.places import free_port, new_folder, new_log
from tools.processes import bound
from tools.servers import PATIENCE, ServerFailed, end_of, launch

NAME = "redis"
PACKAGE = "redis-server"
OWN = "POSTLUDE_TEST_REDIS"
"""The URL of a Redis to use instead; it is not killed, and only keys with fresh names are made in it."""
MISSING = "POSTLUDE_TEST_REDIS_MISSING"
"""Why there is none; set by `dev test`, so that it is looked for once."""

SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    # Written before the answer, which survives a kill; no test pulls the plug of the machine.
    "appendfsync": "no",
    "proto-max-bulk-len": "1mb",
}


def available() -> Program:
    """Raises LookupError with the reason, which is looked for once: no network takes its time to say so."""
    if reason := os.environ.get(MISSING):
        raise LookupError(reason)
    try:
        return program(PACKAGE)
    except LookupError as error:
        os.environ[MISSING] = str(error)
        raise


class RedisServer:
    """Its address and its data stay the same over kill and restart. Start it from the main thread: it dies with it."""

    def __init__(self, found: Program) -> None:
        self.source = found.source
        self.port = 0
        self._program, self._copy = reachable(found)
        self._process: subprocess.Popen[bytes] | None = None
        self._place = new_folder(NAME)
        self.log = new_log(NAME)

    @property
    def version(self) -> str:
        """Such as 7.0.15."""
        env = self._program.environment()
        said = subprocess.run([self._program.path, "--version"], env=env, capture_output=True, text=True, check=True)
        return next(word for word in said.stdout.split() if word.startswith("v=")).removeprefix("v=")

    @property
    def place(self) -> Path:
        """Where it may read files."""
        return self._place

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, tries: int = 5) -> None:
        """Start and wait until it answers; the first start also finds a port. Harmless when it runs."""
        if self._process is not None:
            return
        if self.port:
            self._launch()
            return
        self.port = free_port()
        try:
            self._launch()
        except ServerFailed:  # somebody else may have taken the port in between
            if tries == 1:
                raise
            self.port = 0
            self.start(tries - 1)

    def stop(self) -> None:
        """In order. Harmless when it does not run."""
        if self._process is None:
            return
        self.thaw()
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It hangs: connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop and delete. The log stays until the next run."""
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)
        if self._copy:
            shutil.rmtree(self._copy, ignore_errors=True)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.remove)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _launch(self) -> None:
        settings = {**SETTINGS, "port": str(self.port), "dir": str(self._place)}
        options = [part for key, value in settings.items() for part in (f"--{key}", value)]
        command = bound([self._program.path, *options], death_signal="KILL")
        self._process = launch(command, place=self._place, log=self.log, env=self._program.environment())
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{NAME} does not start; {end_of(self.log)}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        """It takes connections before it has read its log again."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False


class OwnRedis:
    """The one of the user: used, and left alone."""

    version = "of the user"

    def __init__(self, url: str) -> None:
        self.url = url
