"""The guide on resolvers: its table is that of the suite, and its own resolver passes it."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from postlude.testing.contracts.resolver import ResolverContract
from tests.docs.pages import DOCS, Block, blocks, prose, rows

PAGE = DOCS / "guides" / "resolvers.md"


def test_the_table_is_that_of_the_suite() -> None:
    documented = [tuple(row) for row in rows(prose(PAGE).partition("## Test it")[2])]
    assert documented == table(), "python -m tests.docs.test_resolvers prints the table"


def _suite() -> dict[str, Any]:
    """The names of the page that its test needs; what talks to an app is run elsewhere."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(PAGE):
        if block.language == "python" and "app." not in block.text and "aclose" not in block.text:
            exec(_code(block), names)
    return names


def _code(block: Block) -> Any:
    return compile("\n" * (block.line - 1) + block.text, str(PAGE), "exec", dont_inherit=True)


@pytest.mark.parametrize("scenario", _suite()["TestNewsletter"].scenarios())
async def test_its_resolver_passes(scenario: str) -> None:
    names = _suite()
    run = getattr(names["TestNewsletter"](), scenario)
    async with names["client"] as client:
        given = {"vendor": names["NewsletterVendor"](), "resolver": names["Newsletter"](client)}
        await run(**{name: given[name] for name in inspect.signature(run).parameters})


def table() -> list[tuple[str, str]]:
    """In the order of the suite's files."""
    found = []
    for part in ResolverContract.__mro__:
        for name, scenario in vars(part).items():
            if name.startswith("test_"):
                all_of, any_of = getattr(scenario, "needs", (frozenset(), frozenset()))
                words = sorted(all_of) + (["a fault"] if any_of else [])
                found.append((name.removeprefix("test_").replace("_", " "), ", ".join(words) or "-"))
    return found


if __name__ == "__main__":
    sys.stdout.write(
        "\n".join(["| scenario | needs |", "|---|---|", *(f"| {name} | {needs} |" for name, needs in table())]) + "\n"
    )
