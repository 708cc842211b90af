"""Every piece of Python that a page shows runs, top to bottom, as its reader would run it."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from postlude import Postlude, Settings
from tests.docs.pages import PAGES, Block, blocks, name_of

PLACEHOLDER = "postgresql://localhost/shop"
"""What pages write where a reader puts the address of a PostgreSQL database."""

WITH_PYTHON = {name_of(page): page for page in PAGES if any(block.language == "python" for block in blocks(page))}
WITH_TOML = {name_of(page): page for page in PAGES if any(block.language == "toml" for block in blocks(page))}
ON_POSTGRES = {
    name: page
    for name, page in WITH_PYTHON.items()
    if any(block.language == "python" and PLACEHOLDER in block.text for block in blocks(page))
}
EMBEDDED = {name: page for name, page in WITH_PYTHON.items() if name not in ON_POSTGRES}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page writes its files, and looks for settings, where its reader stands."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", EMBEDDED.values(), ids=EMBEDDED)
def test_python_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run_page(page, "", capsys)


@pytest.mark.parametrize("page", ON_POSTGRES.values(), ids=ON_POSTGRES)
def test_python_runs_on_postgresql(page: Path, any_postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    _run_page(page, any_postgres_url, capsys)


@pytest.mark.parametrize("page", WITH_TOML.values(), ids=WITH_TOML)
def test_settings_are_accepted(page: Path, tmp_path: Path) -> None:
    numbers = itertools.count()
    for block in blocks(page):
        if block.language != "toml":
            continue
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        file = "pyproject.toml" if "[tool." in block.text else "postlude.toml"
        (folder / file).write_text(block.text)
        assert Settings.load(environ={}, directory=folder) != Settings(), f"{name_of(page)}:{block.line} sets nothing"


def _run_page(page: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    apps: list[Postlude] = []
    with asyncio.Runner() as runner:
        try:
            for block in blocks(page):
                if block.language != "python":
                    continue
                _run(page, block, url, names, runner)
                printed = capsys.readouterr().out
                assert block.output in (None, printed), f"{name_of(page)}:{block.line} prints\n{printed}"
                apps += [value for value in names.values() if isinstance(value, Postlude) and value not in apps]
        finally:
            for app in apps:
                runner.run(app.close())


def _run(page: Path, block: Block, url: str, names: dict[str, Any], runner: asyncio.Runner) -> None:
    code = _compiled(page, block, url)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, names))
    else:
        exec(code, names)


def _compiled(page: Path, block: Block, url: str) -> CodeType:
    """With the line numbers of the page, so that a traceback points into it."""
    source = "\n" * (block.line - 1) + block.text.replace(PLACEHOLDER, url)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(source, str(page), "exec", flags=flags, dont_inherit=True)
    return code
