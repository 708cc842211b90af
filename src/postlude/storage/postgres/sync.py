"""Transactions of our own for code without an event loop; asyncpg cannot give them, psycopg can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from postlude.errors import DatabaseUnavailable, MissingExtra
from postlude.storage.postgres import url_parameters


@contextmanager
def sync_transaction(dsn: str) -> Iterator[Any]:
    """On a connection that lasts just as long. Who appends often has a pool, and gives its connections instead."""
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "app.sync.transaction() on PostgreSQL needs psycopg",
            hint="pip install 'postlude[psycopg]', or give app.sync.outbox.append a handle of your own.",
        ) from error
    from postlude.storage.postgres.psycopg_connection import known_parameters

    place, given = url_parameters.read(dsn, "psycopg", known_parameters())
    # Whether a pooler stands in between is not known here, and a connection of one transaction gains little.
    parameters: dict[str, Any] = {"connect_timeout": 10, **given, "prepare_threshold": None}
    try:
        connection = psycopg.connect(place, **parameters)
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable("PostgreSQL cannot be reached") from error
    with connection:
        yield connection
