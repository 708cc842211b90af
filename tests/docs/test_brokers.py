"""The page of brokers says what the suite collects."""

from __future__ import annotations

from tests import scenarios
from tests.docs.pages import DOCS, prose, rows

PAGE = DOCS / "reference" / "brokers.md"


def test_the_table_is_that_of_the_suite() -> None:
    head, *table = scenarios.rows(scenarios.declared())
    assert f"| {' | '.join(head)} |" in prose(PAGE), "python -m tests.scenarios prints the table"
    documented = [tuple(row) for row in rows(prose(PAGE))]
    if scenarios.is_whole():
        assert documented == table
    else:  # what would break a server of the user's is not collected
        assert [row[0] for row in documented] == [row[0] for row in table]
