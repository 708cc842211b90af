"""Private PostgreSQL servers: direct children on free ports, with their data in a folder of the project."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.binaries import PostgresBinaries, account, reachable
from tools.places import free_port, new_folder, new_log
from tools.processes import bound, children_of, kill_all

PATIENCE = 30.0
"""Seconds a server gets to start or stop."""

TEST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "200", "max_prepared_transactions": "50"}
"""No test pulls the plug of the machine; commits stay synchronous, so that kill -9 of the server loses nothing."""


class ServerFailed(RuntimeError):
    """A server did not come up; the message ends with its log."""


class PostgresServer:
    """One server with a fresh, empty cluster. Its address stays the same over kill and restart.

    Start it from the main thread: it is bound to the thread that starts it and dies with it.
    """

    def __init__(self, binaries: PostgresBinaries, *, durable: bool = False) -> None:
        self.name = binaries.name
        self.version = binaries.version
        self.source = binaries.source
        self.port = 0
        self._settings = {} if durable else TEST_SETTINGS
        self._process: subprocess.Popen[bytes] | None = None
        self._bin, self._copy = reachable(binaries)
        self._place = new_folder(self.name)
        self.data = self._place / "data"
        self.log = new_log(self.name)

    @property
    def dsn(self) -> str:
        """The address of its first database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start and wait until it takes connections; the first start also makes the cluster and finds a port."""
        if self.port:
            self._launch()
        else:
            self._make_cluster()
            self._launch_somewhere()

    def stop(self) -> None:
        """Stop in order: sessions are ended, everything is written. Harmless when it does not run."""
        for number in (signal.SIGINT, signal.SIGQUIT):
            if self._process is None:
                return
            self._process.send_signal(number)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                continue
            self._process = None
        self.kill()

    def kill(self) -> None:
        """SIGKILL, as if the machine had lost power: the server and every session, at once."""
        if self._process is None:
            return
        sessions = children_of(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._process = None
        # A session that is busy would notice only later, and until then the data cannot be opened again.
        kill_all(sessions)

    def restart(self) -> None:
        """Stop in order and start again at the same address."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop and delete the data. The log stays until the next run."""
        self.stop()
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

    def _make_cluster(self) -> None:
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        if self._popen("initdb", "-D", self.data, *options).wait() != 0:
            raise ServerFailed(self._explain("initdb failed"))

    def _launch_somewhere(self, tries: int = 5) -> None:
        self.port = free_port()
        try:
            self._launch()
        except ServerFailed:  # somebody else may have taken the port in between
            if tries == 1:
                raise
            self._launch_somewhere(tries - 1)

    def _launch(self) -> None:
        # No Unix socket: its path would have to be short, and everybody connects by TCP.
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self._settings,
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        self._process = self._popen("postgres", "-D", self.data, *options)
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(self._explain("does not start"))
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        """The server writes its state into the last line of its pid file, as pg_ctl knows too."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _popen(self, program: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        # A user's PGPORT or PGOPTIONS must not reach in.
        env = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        command = bound([self._bin.bin / program, *arguments], death_signal="QUIT")
        return launch(command, place=self._place, log=self.log, env=env)

    def _explain(self, what: str) -> str:
        return f"{self.name} ({self.version}) {what}; {end_of(self.log)}"


def launch(command: Sequence[str], *, place: Path, log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a server as the servers' account, in its folder, with all it says in its log."""
    other = account()
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=place,
            env=env,
            user=other.pw_uid if other else None,
            group=other.pw_gid if other else None,
            extra_groups=[] if other else None,
            # Ctrl-C is for us: the tests still need the server while they tidy up.
            start_new_session=True,
        )


def end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:]
    return "\n".join(["the end of its log:", *lines])
