"""Server programs from Debian's packages, unpacked into the project's own folder: without root, and installing nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.binaries import account, open_to_others
from tools.environment import HOME, say

PLACE = HOME / "debian"
ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where servers are; not on everybody's PATH."""
FETCHING = 300.0
"""Seconds for one run of apt-get."""

_HOOKS = ("APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success", "APT::Update::Pre-Invoke")


@dataclass(frozen=True)
class Program:
    """A program that can be run, and the folders of the libraries that came with it."""

    path: Path
    source: str
    libraries: tuple[Path, ...] = ()

    def environment(self, own: Mapping[str, str] = os.environ) -> dict[str, str]:
        before = [own["LD_LIBRARY_PATH"]] if own.get("LD_LIBRARY_PATH") else []
        folders = [*map(str, self.libraries), *before]
        return {**own, "LD_LIBRARY_PATH": ":".join(folders)} if folders else dict(own)


def program(package: str, name: str | None = None) -> Program:
    """The program of a package: the system's own if it is installed, else unpacked into .dev/debian, and fetched
    there first if need be. Raises LookupError with the reason."""
    name = name or package
    if found := shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{ADMIN_PATH}"):
        return Program(Path(found), "this system")
    unpacked = PLACE / package
    with _alone():
        if not unpacked.exists():
            _fetch(package, unpacked)
    path = next((path for place in ("sbin", "bin") if (path := unpacked / "usr" / place / name).is_file()), None)
    if path is None:
        raise LookupError(f"Debian's package {package} has no program {name}")
    return Program(path, f"Debian's package {package}", _libraries(unpacked))


def program_once(package: str, missing: str, advice: str = "") -> Program:
    """The reason why it is not there is looked for once, and kept in the environment variable `missing`: no network
    takes its time to say so."""
    if reason := os.environ.get(missing):
        raise LookupError(reason)
    try:
        return program(package)
    except LookupError as error:
        os.environ[missing] = f"{error}{advice}"
        raise LookupError(os.environ[missing]) from error


def reachable(found: Program) -> tuple[Program, Path | None]:
    """One that the servers' account can run, and the folder to delete afterwards if it had to be copied."""
    if account() is None or open_to_others(found.path):
        return found, None
    root = found.path.parents[2]
    copy = Path(tempfile.mkdtemp(prefix="postlude-debian-"))
    shutil.copytree(root, copy, symlinks=True, dirs_exist_ok=True)
    copy.chmod(0o755)
    return Program(copy / found.path.relative_to(root), found.source, _libraries(copy)), copy


def _libraries(root: Path) -> tuple[Path, ...]:
    folders = [folder for lib in (root / "usr/lib", root / "lib") for folder in (lib, *lib.glob("*-linux-gnu*"))]
    return tuple(folder for folder in folders if any(folder.glob("*.so*")))


def _fetch(package: str, target: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise LookupError(f"{package} is not installed, and there is no {tool} to fetch it with")
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        work = Path(folder)
        archives = _download(package, work)
        size = sum(archive.stat().st_size for archive in archives) / 1e6
        say(f"downloaded {', '.join(archive.name for archive in archives)} ({size:.1f} MB, once) to {PLACE}")
        root = work / "root"
        for archive in archives:
            _call(["dpkg-deb", "-x", str(archive), str(root)], f"{archive.name} cannot be unpacked")
        root.chmod(0o755)
        root.rename(target)  # at once: what is there is whole


def _download(package: str, work: Path) -> list[Path]:
    """The package and what it needs beyond what is installed. The system's list of packages is only read."""
    lists, archives = PLACE / "apt" / "lists", work / "archives"
    for folder in (lists / "partial", archives / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    configuration = work / "apt.conf"
    options = {
        "Dir::State": lists.parent,
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": work,
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "",
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "20",
    }
    # Hooks of the system clean up in the system's own folders.
    lines = [*(f"#clear {hook};" for hook in _HOOKS), *(f'{key} "{value}";' for key, value in options.items())]
    configuration.write_text("\n".join(lines) + "\n")
    apt = ["apt-get", "-c", str(configuration), "-q", "-y"]
    install = [*apt, "--no-install-recommends", "--download-only", "install", package]
    complaint = f"{package} cannot be downloaded"
    say(f"{package} is not installed here: asking Debian for it")
    if any(lists.glob("*Packages*")) and _succeeds(install):
        return sorted(archives.glob("*.deb"))
    _call([*apt, "update"], f"{complaint} (apt-get update)")
    _call(install, complaint)
    return sorted(archives.glob("*.deb"))


def _succeeds(command: list[str]) -> bool:
    try:
        _call(command, "")
    except LookupError:
        return False
    return True


def _call(command: list[str], complaint: str) -> None:
    env = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCHING, check=False
        )
    except subprocess.TimeoutExpired:
        raise LookupError(f"{complaint}: no end after {FETCHING:g} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "dpkg-deb:"))]
        raise LookupError(f"{complaint}: {said[0] if said else f'exit code {done.returncode}'}")


@contextmanager
def _alone() -> Iterator[None]:
    """Two at once: the second waits, and finds what the first has fetched."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
