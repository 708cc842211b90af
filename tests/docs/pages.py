"""The pages people read, taken apart: fenced blocks, headings, links, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.source_tree import ROOT

DOCS = ROOT / "docs"
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line its text begins on."""

    language: str
    text: str
    line: int
    output: str | None = None
    """The `text` block that follows directly: what the block prints."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """In order of appearance."""
    source = page.read_text()
    fences = list(_FENCE.finditer(source))
    found = []
    for index, fence in enumerate(fences):
        line = source.count("\n", 0, fence.start(2)) + 1
        after = fences[index + 1] if index + 1 < len(fences) else None
        printed = after[2] if after and after[1] == "text" and not source[fence.end() : after.start()].strip() else None
        found.append(Block(fence[1], fence[2], line, printed))
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The names that links may point to, as GitHub makes them."""
    return {_anchor(title) for _, title in _HEADING.findall(prose(page))}


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def sections(page: Path, level: int) -> Iterator[tuple[str, str]]:
    """Heading and text of every section of that level."""
    marks = [mark for mark in _HEADING.finditer(page.read_text()) if len(mark[1]) <= level]
    text = page.read_text()
    for index, mark in enumerate(marks):
        end = marks[index + 1].start() if index + 1 < len(marks) else len(text)
        if len(mark[1]) == level:
            yield mark[2], text[mark.end() : end]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row but headings and rulers."""
    lines = [line.strip() for line in text.splitlines()]
    ruled = {index for index, line in enumerate(lines) if re.fullmatch(r"\|[ :|-]+\|", line)}
    headings = {index - 1 for index in ruled}
    return [
        [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for index, line in enumerate(lines)
        if line.startswith("|") and index not in ruled | headings
    ]


def code(text: str) -> list[str]:
    """What stands between backticks."""
    return _CODE.findall(text)


def _anchor(title: str) -> str:
    plain = re.sub(r"[^\w\- ]", "", title.lower())
    return plain.replace(" ", "-")
