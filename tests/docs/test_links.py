"""Links inside the repository lead somewhere, and every page can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, anchors, links, name_of
from tests.source_tree import ROOT


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    broken = [link for link in links(page) if not link.startswith("https://") and not _leads_somewhere(page, link)]
    assert not broken


def test_every_page_is_linked_from_the_index() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert not [name_of(page) for page in DOCS.rglob("*.md") if page != index and page.resolve() not in linked]


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or anchor in anchors(target)
