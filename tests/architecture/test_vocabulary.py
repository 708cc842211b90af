"""One word per concept (docs: glossary). Empty names and the words of other systems stay out of code and SQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.source_tree import modules, texts

EMPTY = frozenset({"manager", "util", "utils", "helper", "helpers", "common", "base", "factory", "misc"})
"""Names that say nothing about what a thing does."""

BANNED = frozenset(
    {
        "abandoned",  # dead letter
        "archive",  # the log with its receipts
        "dead_letter_queue",  # dead letters
        "dispatcher",  # relay
        "enqueue",  # append
        "in_flight",  # claimed, under way
        "job",  # delivery
        "message_bus",  # broker
        "poller",  # relay
        "task_queue",  # lanes
    }
)
PUBLIC = frozenset({"TransactionFactory", "AbandonedSignal", "list_abandoned", "on_abandoned"})
"""Names the public contract fixed before this rule."""

CALLS = frozenset({"calls", "erasure", "store_calls", "store_call_endings"})
"""Packages and modules whose public names keep a word of their own field: a foreign call can be abandoned."""


def test_nothing_has_an_empty_name() -> None:
    named = {
        f"{path}: {name}"
        for path, tree in modules().items()
        for name in (path.stem, path.parent.name, *_definitions(tree))
        if name not in PUBLIC and EMPTY.intersection(_words(name))
    }
    assert not named, "\n".join(sorted(named))


def test_identifiers_use_our_words() -> None:
    found = {
        f"{path}: {name} ({word})"
        for path, tree in modules().items()
        if not CALLS.intersection((path.parts[0], path.stem))
        for name in _identifiers(tree)
        if name not in PUBLIC
        for word in _banned_in(name)
    }
    assert not found, "\n".join(sorted(found))


def test_sql_uses_our_words() -> None:
    found = {
        f"{name}: {identifier} ({word})"
        for name, text in texts(".sql")
        for identifier in re.findall(r"[A-Za-z_]+", re.sub(r"--.*|'[^']*'", "", text))
        for word in _banned_in(identifier)
    }
    assert not found, "\n".join(sorted(found))


def _words(name: str) -> list[str]:
    """`DeadLetterQueue` and `dead_letter_queue` are the same three words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def _banned_in(name: str) -> Iterator[str]:
    padded = f"_{'_'.join(_words(name))}_"
    return (word for word in BANNED if f"_{word}_" in padded)


def _definitions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def _identifiers(tree: ast.Module) -> Iterator[str]:
    yield from _definitions(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                yield name
            case _:
                pass
