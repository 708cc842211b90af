"""Sagas through psycopg: what proves them through asyncpg, run again on URLs that name the other driver."""

# ruff: noqa: F401 - tests and fixtures are taken over by name, and get the URLs of this module

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from postlude import Postlude
from tests.databases import Databases
from tests.integration.test_saga_deadlines import (
    test_a_step_that_misses_its_deadline_is_undone_though_it_waits_to_be_tried_again,
)
from tests.integration.test_saga_faults import test_a_lost_connection_at_any_commit_changes_nothing
from tests.integration.test_saga_operators import (
    test_a_step_behind_the_pivot_is_retried_skipped_or_given_up,
    test_an_undo_that_says_err_needs_an_operator,
)
from tests.integration.test_sagas import (
    test_a_call_has_one_key_for_all_its_attempts_and_is_undone_when_nobody_knows,
    test_a_step_that_commits_by_itself_may_have_happened,
    test_a_worker_runs_many_at_a_time,
    test_an_err_rolls_its_step_back_and_the_others_are_undone,
    test_steps_run_one_after_the_other_to_the_end,
)
from tests.saga_books import books


@pytest.fixture
def database_url(any_postgres_database: Databases) -> str:
    return any_postgres_database.fresh().replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Postlude]:
    async with books(database_url) as app:
        yield app
