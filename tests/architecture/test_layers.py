"""Who may import whom: the contracts in pyproject.toml, without exceptions."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.source_tree import ROOT


def test_every_import_contract_is_kept() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    linted = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_no_contract_has_an_exception() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    excused = [contract["name"] for contract in linter["contracts"] if "ignore_imports" in contract]
    assert not excused
