"""What all private servers share: a folder, a port and a log, and a process to start, wait for, freeze, stop and kill."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.binaries import account
from tools.places import free_port, new_folder, new_log
from tools.processes import bound, children_of, freeze, kill_all

PATIENCE = 30.0
"""Seconds a server gets to start or stop."""


class ServerFailed(RuntimeError):
    """A server did not come up; the message ends with its log."""


class ChildProcess:
    """Started at the beginning of a `with`, removed at its end, and able to hang in between."""

    name: str
    log: Path
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        raise NotImplementedError

    def freeze(self) -> None:
        """It hangs: connections stay open, nothing is answered, until `thaw`."""
        if self._process is not None:
            freeze(self._process.pid)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

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

    def _explain(self, what: str) -> str:
        return f"{self.name} {what}; {end_of(self.log)}"


class ServerProcess(ChildProcess):
    """Its address and its data stay the same over kill and restart.

    Start it from the main thread: it is bound to the thread that starts it and dies with it.
    """

    death_signal = "KILL"
    stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,)

    def __init__(self, folder: str, copy: Path | None = None, *, on_disk: bool = True) -> None:
        self.port = 0
        self.place = new_folder(folder, on_disk=on_disk)
        self.log = new_log(folder)
        self._copy = copy
        self._environment: Mapping[str, str] = dict(os.environ)

    def start(self, tries: int = 5) -> None:
        """Start and wait until it takes connections; the first start also finds a port. Harmless when it runs."""
        if self._process is not None:
            return
        known = self.port
        self.launch()
        try:
            self._wait()
        except ServerFailed:  # somebody else may have taken a port in between
            self.kill()
            if known or tries == 1:
                raise
            self.port = 0
            self.start(tries - 1)

    def launch(self) -> None:
        """Start and wait for nothing."""
        if not self.port:
            self.port = free_port()
            self._arrange()
        self._process = self._spawn()

    def stop(self) -> None:
        """In order. Harmless when it does not run."""
        self.thaw()
        for number in self.stop_signals:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(PATIENCE)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, as if the machine had lost power: the server and all it has started, at once."""
        if self._process is not None:
            kill(self._process)
            self._process = None

    def restart(self) -> None:
        """Stop in order and start again at the same address."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop and delete. The log stays until the next run."""
        self.kill()
        shutil.rmtree(self.place, ignore_errors=True)
        if self._copy:
            shutil.rmtree(self._copy, ignore_errors=True)

    def _arrange(self) -> None:
        """What a new port needs: files of configuration."""

    def _spawn(self) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(self._explain("does not start"))
            time.sleep(0.01)

    def _popen(self, *command: str | Path, log: Path | None = None) -> subprocess.Popen[bytes]:
        """Run something as the servers' account, in the folder, with all it says in the log."""
        other = account()
        with (log or self.log).open("ab") as output:
            return subprocess.Popen(
                bound(command, self.death_signal),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.place,
                env=self._environment,
                user=other.pw_uid if other else None,
                group=other.pw_gid if other else None,
                extra_groups=[] if other else None,
                # Ctrl-C is for us: the tests still need the server while they tidy up.
                start_new_session=True,
            )


def kill(process: subprocess.Popen[bytes]) -> None:
    """A child that is busy would notice only later, and until then data or a port may not be free again."""
    children = children_of(process.pid) if process.poll() is None else []
    process.kill()
    process.wait()
    kill_all(children)


def end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:]
    return "\n".join(["the end of its log:", *lines])
