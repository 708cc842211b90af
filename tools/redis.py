"""A private Redis that writes every command to its log before it answers."""

from __future__ import annotations

import socket
import subprocess

from tools.debian import Program, program_once, reachable
from tools.server_process import ServerProcess

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
    """Raises LookupError with the reason."""
    return program_once(PACKAGE, MISSING)


class RedisServer(ServerProcess):
    """It keeps its log of commands in its `place`, and may read files there."""

    name = NAME

    def __init__(self, found: Program) -> None:
        self.source = found.source
        self._program, copy = reachable(found)
        super().__init__(NAME, copy)
        self._environment = self._program.environment()

    @property
    def version(self) -> str:
        """Such as 7.0.15."""
        env = self._environment
        said = subprocess.run([self._program.path, "--version"], env=env, capture_output=True, text=True, check=True)
        return next(word for word in said.stdout.split() if word.startswith("v=")).removeprefix("v=")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = {**SETTINGS, "port": str(self.port), "dir": str(self.place)}
        options = [part for key, value in settings.items() for part in (f"--{key}", value)]
        return self._popen(self._program.path, *options)

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
