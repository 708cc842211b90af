"""Child processes that cannot outlive us, whether we end well, by a signal, or by kill -9."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

GRACE = 15.0
"""Seconds a child gets to end by itself before it is killed."""

_PR_SET_CHILD_SUBREAPER = 36


def bound(command: Sequence[str | Path], death_signal: str = "TERM") -> list[str]:
    """The command, made to receive that signal when the thread that starts it dies, even by kill -9.

    setpriv does it rather than a preexec function: those are unsafe in a process with threads. Where there is no
    setpriv (not Linux) the command is left alone, and only an orderly end of ours reaches it.
    """
    setpriv = shutil.which("setpriv")
    prefix = [setpriv, "--pdeathsig", death_signal, "--"] if setpriv else []
    return [*prefix, *map(str, command)]


def run(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, stop_signal: signal.Signals = signal.SIGTERM
) -> int:
    """Run a command in the foreground and return its exit code; when we are interrupted, it ends first."""
    child = subprocess.Popen(bound(command), env=env)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        # The terminal told the child too: a second signal would break into its cleaning up.
        _end(child, stop_signal, patience=GRACE / 3)
        raise
    except BaseException:
        _end(child, stop_signal, patience=0)
        raise
    return code if code >= 0 else 128 - code


def _end(child: subprocess.Popen[bytes], stop_signal: signal.Signals, patience: float) -> None:
    for number, seconds in ((None, patience), (stop_signal, GRACE), (signal.SIGKILL, GRACE)):
        if number is not None:
            child.send_signal(number)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        return


def end_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the stack, so that every `finally` runs."""

    def unwind(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, unwind)
    signal.signal(signal.SIGHUP, unwind)


@contextmanager
def shielded() -> Iterator[None]:
    """For the last steps of stopping: an impatient second Ctrl-C must not leave something behind."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies, so that `end_orphans` can find them (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> list[str]:
    """Kill what our children left behind and say what it was."""
    found: list[str] = []
    while living := alive(children_of(os.getpid())):
        found += [f"{pid} {_command_of(pid)}" for pid in living]
        kill_all(living)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    return found


def children_of(parent: int) -> list[int]:
    """The ids of a process's children, as far as this system tells (Linux)."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _stat(pid)[1] == parent]


def alive(pids: Iterable[int]) -> list[int]:
    """Those that still run; a zombie only waits for its parent."""
    return [pid for pid in pids if _stat(pid)[0] not in {"Z", "X", ""}]


def kill_all(pids: Sequence[int]) -> None:
    """SIGKILL each and wait until the last is gone."""
    for pid in alive(pids):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while alive(pids):
        time.sleep(0.005)


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until every thread has stopped: until then a server may still answer."""
    os.kill(pid, signal.SIGSTOP)
    while any(state not in "TtZX" for state in _thread_states(pid)):
        time.sleep(0.001)


def _thread_states(pid: int) -> list[str]:
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # a thread that has just ended
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return states


def _stat(pid: int) -> tuple[str, int]:
    """State and parent of a process; ("", 0) when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"
