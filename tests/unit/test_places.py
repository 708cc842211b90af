"""Where private servers keep their data: in memory if there is room, else in the project's own folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import places

DEAD = 2**22 + 1
"""No process has that id: Linux ends before."""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk in memory's stead, and another in that of the project."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(places, "MEMORY", folder)
    monkeypatch.setattr(places, "HOME", tmp_path / "home")
    monkeypatch.setattr(places, "ROOM", 0)
    monkeypatch.setattr(places, "account", lambda: None)
    return folder


def test_what_may_be_forgotten_is_in_memory(memory: Path) -> None:
    folder = places.new_folder("postgres", on_disk=False)
    assert folder.is_dir()
    assert folder.parent.parent == memory
    assert folder.name.startswith(f"{os.getpid()}-postgres-")


def test_what_must_last_is_on_disk(memory: Path) -> None:
    assert places.new_folder("postgres").parent == places.HOME / "services"
    assert not list(memory.iterdir())


def test_without_room_it_is_on_disk(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "ROOM", 2**62)
    assert places.new_folder("postgres", on_disk=False).parent == places.HOME / "services"


def test_without_such_a_place_it_is_on_disk(memory: Path) -> None:
    memory.rmdir()
    assert places.new_folder("postgres", on_disk=False).parent == places.HOME / "services"


def test_a_folder_that_is_not_ours_is_left_alone(memory: Path) -> None:
    theirs = places.in_memory()
    assert theirs is not None
    theirs.rmdir()
    theirs.symlink_to("/")  # whoever it belongs to, it is no folder that we have made
    assert places.in_memory() is None


def test_what_dead_runs_left_there_is_deleted(memory: Path) -> None:
    first = places.new_folder("postgres", on_disk=False)
    left = first.with_name(f"{DEAD}-postgres-left")
    left.mkdir()
    assert places.new_folder("postgres", on_disk=False).parent == first.parent
    assert not left.exists()
    assert first.exists()
