"""Server programs from Debian's packages: what is had from where, and what is said when it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import debian
from tools.debian import Program, program


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it."""
    monkeypatch.setattr(debian, "PLACE", tmp_path / "debian")
    monkeypatch.setattr(debian, "ADMIN_PATH", str(tmp_path / "sbin"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o755)
    return path


def test_what_the_system_has_is_used(place: Path) -> None:
    path = make(place / "sbin" / "some-server")
    assert program("some-package", "some-server") == Program(path, "this system")


def test_what_was_unpacked_before_is_used_with_its_libraries(place: Path) -> None:
    root = place / "debian" / "some-package"
    path = make(root / "usr/sbin/some-server")
    library = make(root / "usr/lib/x86_64-linux-gnu/libsome.so.2")
    found = program("some-package", "some-server")
    assert (found.path, found.libraries) == (path, (library.parent,))
    assert found.environment({"LD_LIBRARY_PATH": "/own"}) == {"LD_LIBRARY_PATH": f"{library.parent}:/own"}
    with pytest.raises(LookupError, match="some-package has no program other"):
        program("some-package", "other")


def test_without_apt_there_is_a_reason() -> None:
    with pytest.raises(LookupError, match="there is no apt-get"):
        program("some-package")


def test_what_apt_complains_of_is_the_reason(place: Path) -> None:
    make(place / "bin" / "dpkg-deb")
    apt = make(place / "bin" / "apt-get")
    apt.write_text("#!/bin/sh\necho 'W: slow' >&2\necho 'E: no network' >&2\nexit 100\n")
    with pytest.raises(LookupError, match=r"some-package cannot be downloaded \(apt-get update\): E: no network"):
        program("some-package")
    assert not (place / "debian" / "some-package").exists()


def test_what_is_fetched_is_unpacked_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apt = make(place / "bin" / "apt-get")
    apt.write_text(FETCHES)
    unpack = make(place / "bin" / "dpkg-deb")
    unpack.write_text('#!/bin/sh\n/bin/mkdir -p "$3/usr/bin"\n/bin/cp "$2" "$3/usr/bin/some-server"\n')
    (found,) = {program("some-package", "some-server") for _ in range(2)}
    assert found.path == place / "debian" / "some-package" / "usr" / "bin" / "some-server"
    assert capsys.readouterr().err.count("downloaded some-package_1.deb") == 1


FETCHES = """#!/bin/sh
case "$*" in *install*) ;; *) exit 0 ;; esac
folder=$(/bin/sed -n 's/^Dir::Cache "\\(.*\\)";/\\1/p' "$2")
echo it > "$folder/archives/some-package_1.deb"
"""
