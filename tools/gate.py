"""`dev check`: everything that must be true of the code itself. Every step runs, even after one has failed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.environment import HOME, ROOT
from tools.processes import run
from tools.suite import run_pytest, tiers

COVERED_TIERS = ("unit", "contract", "integration", "property")
COVERED_PACKAGES = (
    "core", "outbox", "insight", "runtime", "inbox", "saga", "calls", "erasure", "privacy", "audit",
)  # fmt: skip
BAR = 90
"""Percent of lines and branches of the core and the services."""

_BIN = Path(sys.executable).parent


def check(arguments: Sequence[str]) -> int:
    """Run all steps and return 1 when any failed."""
    parser = argparse.ArgumentParser(prog="dev check", description="Style, types, imports, architecture, coverage.")
    parser.parse_args(arguments)
    results = [(name, *_timed(name, step)) for name, step in STEPS.items()]
    print("\n" + "-" * 40)
    for name, passed, seconds in results:
        print(f"{'ok' if passed else 'FAILED':<7} {name:<20} {seconds:6.1f} s")
    return 0 if all(passed for _, passed, _ in results) else 1


def _timed(name: str, step: Callable[[], int]) -> tuple[bool, float]:
    print(f"\n--- {name}", flush=True)
    start = time.monotonic()
    passed = step() == 0
    seconds = time.monotonic() - start
    print(f"{'ok' if passed else 'FAILED'}: {name}, {seconds:.1f} s", flush=True)
    return passed, seconds


def _tool(program: str, *arguments: str) -> Callable[[], int]:
    return lambda: run([_BIN / program, *arguments])


def _types() -> int:
    folders = ("src", "tools", "tests", "benchmarks", "examples", "dev")
    return run([_BIN / "mypy", *(folder for folder in folders if (ROOT / folder).exists())])


def _coverage() -> int:
    present = [tier for tier in COVERED_TIERS if tier in tiers()]
    # The slow ones and the other versions of PostgreSQL run in `dev test`; they cover nothing that these leave out.
    tests = run_pytest(present, ["--cov", "--cov-report=", "-m", "not slow"], majors=[16])
    include = ",".join(f"*/postlude/{package}/*" for package in COVERED_PACKAGES)
    report = run([_BIN / "coverage", "report", f"--include={include}", f"--fail-under={BAR}", "--precision=1"])
    return tests or report


STEPS: dict[str, Callable[[], int]] = {
    "ruff check": _tool("ruff", "check"),
    "ruff format": _tool("ruff", "format", "--check"),
    "mypy": _types,
    "lint-imports": _tool("lint-imports", "--cache-dir", str(HOME / "import-linter")),
    "architecture": lambda: run_pytest(["architecture"]),
    "coverage": _coverage,
}
