"""The worker through psycopg: what proves it through asyncpg, run again on URLs that name the other driver."""

# ruff: noqa: F401 - tests and fixtures are taken over by name, and get the URLs of this module

from __future__ import annotations

import pytest

from tests.databases import Databases
from tests.integration.test_handlers import (
    app,
    test_a_failure_rolls_the_effect_back_and_is_tried_again,
    test_a_handler_that_commits_what_it_was_lent_is_a_dead_letter,
    test_a_handler_that_takes_too_long_is_stopped_and_tried_again,
    test_an_append_of_the_context_goes_with_the_transaction,
    test_err_undoes_the_writes_appends_the_failure_and_settles,
)
from tests.integration.test_leases import (
    test_a_busy_loop_does_not_lose_its_lanes,
    test_lanes_are_taken_over_after_a_lease_ends,
)
from tests.integration.test_lost_database import (
    test_a_connection_lost_inside_a_handler_burns_no_attempt,
    test_a_worker_reconnects_and_continues,
    test_a_worker_survives_sessions_that_an_administrator_ends,
)
from tests.integration.test_ownership import test_lanes_are_shared_fairly_as_workers_join_and_leave
from tests.integration.test_retention import (
    test_a_day_is_emptied_and_then_dropped,
    test_two_workers_that_both_hold_the_duty_make_each_day_once,
)
from tests.integration.test_worker import (
    test_a_raw_row_with_odd_headers_stops_no_other,
    test_an_outage_burns_no_attempts_and_other_destinations_go_on,
    test_handlers_that_hang_do_not_hold_up_other_destinations,
)
from tools.servers import PostgresServer


def through_psycopg(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture
def database_url(any_postgres_database: Databases) -> str:
    return through_psycopg(any_postgres_database.fresh())


@pytest.fixture
def any_postgres_url(database_url: str) -> str:
    return database_url


@pytest.fixture
def postgres_url(database_url: str) -> str:
    return database_url


@pytest.fixture
def private_postgres(private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    dsn = through_psycopg(private_postgres.dsn)
    monkeypatch.setattr(PostgresServer, "dsn", dsn)
    return private_postgres
