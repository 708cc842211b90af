"""The SQLSTATE is found in whatever wraps the driver's error."""

from __future__ import annotations

import sqlite3

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db.utils import OperationalError

from postlude.core.sqlstate import is_outage, sqlstate_of, wrapped


def test_a_drivers_own() -> None:
    assert sqlstate_of(psycopg.errors.SerializationFailure()) == "40001"


def test_psycopg2_calls_it_pgcode() -> None:
    error = RuntimeError()
    error.pgcode = "40P01"  # type: ignore[attr-defined]
    assert sqlstate_of(error) == "40P01"


def test_behind_sqlalchemy() -> None:
    error = sqlalchemy.exc.DBAPIError("UPDATE", None, psycopg.errors.DeadlockDetected())
    assert sqlstate_of(error) == "40P01"


def test_behind_django_and_behind_the_users_own() -> None:
    django = OperationalError()
    django.__cause__ = psycopg.errors.SerializationFailure()
    theirs = ValueError("stock")
    theirs.__cause__ = django
    assert sqlstate_of(theirs) == "40001"


@pytest.mark.parametrize("error", [ValueError(), psycopg.OperationalError("no connection")])
def test_none(error: Exception) -> None:
    assert sqlstate_of(error) is None


def test_a_circle_ends() -> None:
    one, two = ValueError(1), ValueError(2)
    one.__cause__, two.__cause__ = two, one
    assert list(wrapped(one)) == [one, two]


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("not connected"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.ConnectionDoesNotExistError(),
        asyncpg.AdminShutdownError(),
        asyncpg.DiskFullError(),
        asyncpg.ReadOnlySQLTransactionError(),
        psycopg.OperationalError("the connection is lost"),
        sqlite3.OperationalError("disk I/O error"),
        TimeoutError(),
        ConnectionResetError(),
    ],
)
def test_an_outage_is_nobodys_fault(error: Exception) -> None:
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DataError(),
        asyncpg.UniqueViolationError(),
        asyncpg.ProgramLimitExceededError(),
        psycopg.errors.UntranslatableCharacter(),
        sqlite3.IntegrityError(),
        sqlite3.ProgrammingError(),
        UnicodeEncodeError("utf-8", "x", 0, 1, "no"),
    ],
)
def test_what_the_database_refuses_is_no_outage(error: Exception) -> None:
    assert not is_outage(error)
