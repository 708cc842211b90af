"""What the architecture tests look at: the modules of the package, parsed, and the texts of the repository."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "postlude"


@cache
def modules() -> dict[Path, ast.Module]:
    """Every module of the package by its path below the package."""
    found = {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    assert found, "there is no source to look at"
    return found


def texts(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Every text file of the repository that git tracks or would, with its content."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        path = ROOT / name
        if not path.is_file() or (suffixes and path.suffix not in suffixes):
            continue
        content = path.read_bytes()
        if b"\0" not in content:
            yield name, content.decode()
