"""Modules of 80-200 lines are the aim; these are the hard stops."""

from __future__ import annotations

import ast

from tests.source_tree import PACKAGE, modules

MAX_MODULE = 400
MAX_FUNCTION = 50
ALLOWED: frozenset[str] = frozenset()
"""Modules that may be longer. It is empty, and should stay so: split the module."""


def test_no_module_is_longer_than_the_hard_stop() -> None:
    lengths = {str(path): len((PACKAGE / path).read_text().splitlines()) for path in modules()}
    too_long = {name: lines for name, lines in lengths.items() if lines > MAX_MODULE and name not in ALLOWED}
    assert not too_long, f"split these (lines): {too_long}"


def test_no_function_is_longer_than_a_screen() -> None:
    too_long = [
        f"{path}:{node.lineno} {node.name} ({length} lines)"
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION
    ]
    assert not too_long, "split these:\n" + "\n".join(too_long)


def test_packages_are_at_most_three_levels_deep() -> None:
    too_deep = [str(path) for path in modules() if len(path.parts) > 3]
    assert not too_deep, f"flatten these: {too_deep}"
