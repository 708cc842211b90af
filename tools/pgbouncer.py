"""A private PgBouncer in transaction mode, in front of a server that runs already."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from tools.debian import Program, program, reachable
from tools.places import free_port, new_folder, new_log
from tools.processes import bound
from tools.servers import PATIENCE, ServerFailed, end_of, launch

NAME = "pgbouncer"
MISSING = "POSTLUDE_TEST_PGBOUNCER_MISSING"
"""Why there is none; set by `dev test`, so that it is looked for once."""

CONFIGURATION = """\
[databases]
* = host={host} port={port}{login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = users.txt
admin_users = {user}
pool_mode = transaction
default_pool_size = {pool_size}
"""


def available() -> Program:
    """Raises LookupError with the reason, which is looked for once: no network takes its time to say so."""
    if reason := os.environ.get(MISSING):
        raise LookupError(reason)
    try:
        return program(NAME)
    except LookupError as error:
        os.environ[MISSING] = str(error)
        raise


class PgBouncer:
    """Its address stays the same over kill and restart. Start it from the main thread: it dies with it."""

    def __init__(self, found: Program, upstream: str, *, pool_size: int = 20) -> None:
        self.source = found.source
        self.port = 0
        self._program, self._copy = reachable(found)
        self._upstream = urlsplit(upstream)
        self._pool_size = pool_size
        self._process: subprocess.Popen[bytes] | None = None
        self._place = new_folder(NAME)
        self.log = new_log(NAME)

    @property
    def version(self) -> str:
        """Such as 1.18.0."""
        env = self._program.environment()
        said = subprocess.run([self._program.path, "-V"], env=env, capture_output=True, text=True, check=True)
        return said.stdout.split()[1]

    def url(self, database: str) -> str:
        """The address of a database behind it; `pgbouncer` is its own console."""
        return f"postgresql://{self._user}@127.0.0.1:{self.port}/{database}"

    def start(self, tries: int = 5) -> None:
        """Start and wait until it takes connections; the first start also finds a port."""
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

    def kill(self) -> None:
        """SIGKILL: all its clients and servers lose their connections. It has nothing to lose itself."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

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

    @property
    def _user(self) -> str:
        return unquote(self._upstream.username or "postgres")

    def _launch(self) -> None:
        password = unquote(self._upstream.password or "")
        (self._place / "users.txt").write_text(f'"{self._user}" ""\n')
        (self._place / "pgbouncer.ini").write_text(
            CONFIGURATION.format(
                host=self._upstream.hostname,
                port=self._upstream.port or 5432,
                login=f" user={self._user} password={password}" if password else "",
                own_port=self.port,
                user=self._user,
                pool_size=self._pool_size,
            )
        )
        command = bound([self._program.path, "pgbouncer.ini"], death_signal="KILL")
        self._process = launch(command, place=self._place, log=self.log, env=self._program.environment())
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{NAME} does not start; {end_of(self.log)}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
