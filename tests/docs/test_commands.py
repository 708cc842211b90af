"""Every command line that a page shows would be accepted, and the overview lists every command there is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from postlude.cli.main import cli
from tests.docs.pages import DOCS, PAGES, blocks, code, name_of, prose, rows
from tests.source_tree import ROOT

ROOT_COMMAND: Any = typer.main.get_command(cli)
SHELLS = {"console", "sh", "bash"}
VERBS = ("demo", "test", "check", "bench", "services")


def _lines() -> Iterator[tuple[str, str]]:
    """Where it stands, and the command line."""
    for page in PAGES:
        for block in blocks(page):
            for number, line in enumerate(block.text.splitlines() if block.language in SHELLS else (), block.line):
                yield f"{name_of(page)}:{number}", line.removeprefix("$ ")


def _inline() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for text in code(prose(page)):
            if text.startswith("postlude "):
                yield f"{name_of(page)}: {text}", " ".join(text.split())


SHOWN = dict(_lines())
MENTIONED = dict(_inline())


@pytest.mark.parametrize("where", [where for where, line in SHOWN.items() if line.startswith("postlude ")])
def test_a_shown_command_is_accepted(where: str) -> None:
    command, rest = _leaf(SHOWN[where])
    command.make_context("postlude", rest)  # complains of unknown options, wrong values and missing ones


@pytest.mark.parametrize("where", MENTIONED)
def test_a_mentioned_command_exists(where: str) -> None:
    command, rest = _leaf(MENTIONED[where])
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known | {"--help"}


def test_the_verbs_of_dev_exist() -> None:
    shown = {line.split()[2] for line in SHOWN.values() if line.startswith("python3 dev ")}
    offered = set(re.findall(r"^  (\w+)  ", (ROOT / "dev").read_text(), re.MULTILINE))
    assert shown == offered == set(VERBS)


def test_the_overview_lists_every_command() -> None:
    first_table = prose(DOCS / "reference" / "cli.md").partition("## ")[0]
    listed = [re.sub(r" [A-Z_.]+$", "", code(row[0])[0]) for row in rows(first_table)]
    assert sorted(listed) == sorted(_paths("postlude", ROOT_COMMAND))


def _leaf(line: str) -> tuple[Any, list[str]]:
    words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    command = ROOT_COMMAND
    while words and hasattr(command, "commands") and not words[0].isupper() and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command {words[0]!r} in {line!r}"
        command = command.commands[words.pop(0)]
    return command, words


def _paths(path: str, command: Any) -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield path
        return
    for name, child in command.commands.items():
        yield from _paths(f"{path} {name}", child)
