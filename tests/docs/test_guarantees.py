"""A promise names the tests that prove it, and they exist and run."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, code, sections
from tests.source_tree import ROOT

PAGE = DOCS / "guarantees.md"
PROMISES = dict(sections(PAGE, 2))
CONTRACTS = ROOT / "src" / "postlude" / "testing" / "contracts"
PROOF = re.compile(r"[\w/]+\.py::test_\w+")


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_has_a_sentence_limits_and_proofs(promise: str) -> None:
    text = PROMISES[promise]
    assert re.search(r"^\*\*[A-Z].*?\.\*\*$", text, re.MULTILINE | re.DOTALL)
    assert "\nLimits:" in text
    assert _proofs(text)


@pytest.mark.parametrize("proof", sorted({proof for text in PROMISES.values() for proof in PROOF.findall(text)}))
def test_a_proof_exists(proof: str) -> None:
    file, _, name = proof.partition("::")
    assert name in _tests(ROOT / file), f"{file} has no {name}"


def test_every_contract_is_put_to_use() -> None:
    """A contract test proves something only where an adapter is held to it."""
    used = "\n".join(path.read_text() for path in (ROOT / "tests" / "contract").glob("test_*.py"))
    used += (CONTRACTS / "store.py").read_text()
    named = {Path(proof.partition("::")[0]) for text in PROMISES.values() for proof in _proofs(text)}
    contracts = {path.stem for path in named if (ROOT / path).is_relative_to(CONTRACTS)}
    assert contracts
    assert not {stem for stem in contracts if f"testing.contracts.{stem} import" not in used}


def _proofs(text: str) -> list[str]:
    return [found for found in code(text) if PROOF.fullmatch(found)]


@cache
def _tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
