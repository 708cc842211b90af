"""Where private servers live: a free port, a folder their account can reach, a log."""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from pathlib import Path

from tools.binaries import account, open_to_others
from tools.processes import alive

HOME = Path(__file__).resolve().parent.parent / ".dev"


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


def new_folder(name: str) -> Path:
    """A fresh folder that the servers' account owns and can reach."""
    home = HOME / "services"
    home.mkdir(parents=True, exist_ok=True)
    _forget_the_dead(home)
    other = account()
    reach = other is None or open_to_others(home)
    place = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-{name}-", dir=home if reach else None))
    if other:
        os.chown(place, other.pw_uid, other.pw_gid)
    return place


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
