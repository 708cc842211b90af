"""Where private servers live: a free port, a folder their account can reach, a log."""

from __future__ import annotations

import os
import random
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from zlib import crc32

from tools.binaries import account, open_to_others
from tools.processes import alive

HOME = Path(__file__).resolve().parent.parent / ".dev"
MEMORY = Path("/dev/shm")  # noqa: S108 - one folder in it is ours, and only if we own it
ROOM = 6 * 1024**3
"""Bytes that must be free in memory: the servers of a whole run take up to half of it."""


def free_port() -> int:
    """A free port below the range of outgoing connections.

    Inside that range a client that knocks while the server is down can be given the very port it calls, connect to
    itself, and keep the server from coming back.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def new_folder(name: str, *, on_disk: bool = True) -> Path:
    """A fresh folder that the servers' account owns and can reach; in memory, if it may be and there is room."""
    home = HOME / "services"
    home.mkdir(parents=True, exist_ok=True)
    _forget_the_dead(home)
    if not on_disk and (memory := in_memory()):
        _forget_the_dead(memory)
        home = memory
    other = account()
    reach = other is None or open_to_others(home)
    place = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-{name}-", dir=home if reach else None))
    if other:
        os.chown(place, other.pw_uid, other.pw_gid)
    return place


def in_memory() -> Path | None:
    """This project's folder in memory, or None where there is none or too little of it.

    A database is some 340 files, and tests make thousands of databases. On some disks (ext4 without a journal) a new
    file costs the more, the more files were deleted in the last minutes: up to a millisecond of the processor each.
    """
    folder = MEMORY / f"postlude-{os.geteuid()}-{crc32(f'{socket.gethostname()} {HOME}'.encode()):08x}"
    try:
        if min(shutil.disk_usage(MEMORY).free, _available_memory()) < ROOM:
            return None
        folder.mkdir(mode=0o755, exist_ok=True)
        found = folder.lstat()
        return folder if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() else None
    except OSError:
        return None


def _available_memory() -> int:
    """Bytes, as Linux counts them; elsewhere OSError."""
    with Path("/proc/meminfo").open() as lines:
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def new_log(name: str) -> Path:
    logs = HOME / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    _forget_the_dead(logs)
    handle, path = tempfile.mkstemp(prefix=f"{os.getpid()}-{name}-", suffix=".log", dir=logs)
    os.close(handle)
    return Path(path)


def _forget_the_dead(folder: Path) -> None:
    """Delete what runs that are over have left here: names begin with their process id."""
    for path in folder.iterdir():
        pid = path.name.partition("-")[0]
        if pid.isdigit() and not alive([int(pid)]):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
