"""What a real process shows: on a terminal of any width, in a pipe, without colours; and what a shell completes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from uuid import UUID

import pytest

from tests.acceptance.cli_shop import POISON, place, postlude
from tests.source_tree import ROOT

ESCAPE = "\x1b"
ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
LISTINGS = (
    ("outbox", "list", "--status", "dead"),
    ("outbox", "stats"),
    ("destination", "list"),
    ("operation", "list"),
    ("maintenance", "list"),
    ("audit", "list"),
    ("doctor",),
)


@pytest.fixture
def shop(sqlite_url: str) -> tuple[str, list[UUID]]:
    dead = place(sqlite_url, POISON, POISON)
    done = postlude("outbox", "requeue", str(dead[0]), "--reason", "a long story " * 8, "--database", sqlite_url)
    assert done.code == 0
    done = postlude("outbox", "bury", "--all", "--reason", "not now", "--database", sqlite_url)
    assert done.code == 0
    return sqlite_url, dead


def on_terminal(*arguments: str, **env: str) -> str:
    """The output of `postlude ...` when both its outputs are a terminal."""
    master, slave = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "CI"}}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "postlude.cli.main", *arguments],
            cwd=ROOT,
            env={**inherited, "TERM": "xterm-256color", **env},
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
        )
    finally:
        os.close(slave)
    said = b""
    try:
        while part := os.read(master, 65_536):
            said += part
    except OSError:
        pass  # Linux says so when the last writer has closed the terminal
    finally:
        os.close(master)
        process.wait(90)
    return said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_listings_fit_and_ids_can_be_pasted(shop: tuple[str, list[UUID]], columns: int) -> None:
    url, dead = shop
    for command in LISTINGS if columns == 40 else LISTINGS[:1]:
        shown = on_terminal(*command, "--database", url, COLUMNS=str(columns), NO_COLOR="1")
        assert ESCAPE not in shown, command
        assert max(map(len, shown.splitlines())) <= columns, (command, shown)
        if command[:2] == ("outbox", "list"):
            assert set(ID.findall(shown)) == {str(one) for one in dead}


def test_colours_are_for_terminals_that_want_them(shop: tuple[str, list[UUID]]) -> None:
    url, _ = shop
    wrong = ("outbox", "show", "01a1de6f-f06c-727d-9ebe-fa88701fcf97", "--database", url)
    assert ESCAPE in on_terminal(*wrong)
    assert ESCAPE not in on_terminal(*wrong, NO_COLOR="1")
    piped = postlude("doctor", "--database", url)
    assert ESCAPE not in piped.out + piped.err
    assert ESCAPE not in postlude(*wrong).err


def test_a_shell_completes_commands_options_and_destinations(shop: tuple[str, list[UUID]]) -> None:
    url, _ = shop

    def offered(line: str) -> str:
        env = {"_POSTLUDE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        return postlude(POSTLUDE_DATABASE=url, **env).out

    assert "operation" in offered("postlude op")
    assert "requeue" in offered("postlude outbox re")
    assert "scheduled" in offered("postlude outbox list --status sch")
    assert set(offered("postlude outbox list --destination handler").split()) == {"handler:reserve", "handler:wait"}
    assert offered("postlude destination pause def").split() == ["default"]
    assert offered("postlude maintenance run ret").split() == ["retention"]
    assert offered("postlude outbox list --destination x").split() == []


def test_completion_is_installed(tmp_path) -> None:
    env = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    answer = postlude("--install-completion", "bash", **env)
    assert answer.code == 0, answer
    assert list(tmp_path.rglob("*postlude*"))
    assert "postlude" in postlude("--show-completion", "bash", **env).out
