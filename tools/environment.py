"""The private environment in `.dev/venv`: made from the lock, with hashes, and made again when the lock changes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
PROJECT = ROOT / "pyproject.toml"
HOME = ROOT / ".dev"
VENV = HOME / "venv"
PYTHON = VENV / "bin" / "python"

_INSTALL = ("install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps")


class EnvironmentFailed(RuntimeError):
    """The environment cannot be made; the message says what to do."""


def inside() -> bool:
    """Whether this very process runs in the private environment."""
    return Path(sys.prefix) == VENV


def ensure() -> None:
    """Make the environment, or bring it up to date; costs nothing when it is."""
    HOME.mkdir(exist_ok=True)
    with _alone():
        # The place and the version belong to the print: a moved checkout or another python3 makes a new one.
        locked = _print_of(LOCK.read_bytes(), str(ROOT).encode(), sys.version.encode())
        if _stamp("locked") != locked or not PYTHON.exists():
            _make()
            _remember("locked", locked)
        packaged = _print_of(PROJECT.read_bytes())
        if _stamp("packaged") != packaged:
            say("installing postlude itself, editable")
            _pip(*_INSTALL, "--no-index", "--no-build-isolation", "--editable", str(ROOT))
            _remember("packaged", packaged)


def say(message: str) -> None:
    """Progress is for people: standard output belongs to the verb."""
    print(f"dev: {message}", file=sys.stderr, flush=True)


def _make() -> None:
    say(f"making .dev/venv with Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    if find_spec("ensurepip") is None and find_spec("pip") is None:
        raise EnvironmentFailed("this Python has neither venv nor pip; on Debian: apt install python3-venv")
    without_pip = [] if find_spec("ensurepip") else ["--without-pip"]
    _call([sys.executable, "-m", "venv", *without_pip, str(VENV)], "cannot make a virtual environment")
    count = sum("==" in line for line in LOCK.read_text().splitlines())
    say(f"installing {count} locked packages (about 120 MB, once)")
    _pip(*_INSTALL, "--require-hashes", "--only-binary", ":all:", "--requirement", str(LOCK))


def _pip(*arguments: str) -> None:
    own = next(VENV.glob("lib/python*/site-packages/pip"), None)
    command = [str(PYTHON), "-m", "pip"] if own else [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    _call([*command, *arguments], "pip failed; is a package index reachable? (pip config, PIP_INDEX_URL)")


def _call(command: list[str], complaint: str) -> None:
    # PYTHONPATH and PIP_USER would let the surroundings in; everything pip says goes to people, not to the verb.
    hidden = {"PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"}
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    if subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode != 0:
        raise EnvironmentFailed(complaint)


@contextmanager
def _alone() -> Iterator[None]:
    """Two `dev` at once: the second waits for the first to finish building."""
    with (HOME / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _print_of(*parts: bytes) -> str:
    return sha256(b"\0".join(parts)).hexdigest()


def _stamp(name: str) -> str:
    path = VENV / f"{name}.stamp"
    return path.read_text() if path.exists() else ""


def _remember(name: str, value: str) -> None:
    (VENV / f"{name}.stamp").write_text(value)
