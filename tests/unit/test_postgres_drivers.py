"""Which driver a URL chooses, what it makes of the URL's parameters, and what errors mean, by one table."""

from __future__ import annotations

import re
from typing import Any

import pytest

from postlude import BadUrl, DatabaseUnavailable, Postlude, SchemaMissing, Settings
from postlude.storage.postgres import driver_choice as choice
from postlude.storage.postgres import faults, url_parameters
from postlude.storage.postgres.driver import SESSION, SessionOptions
from postlude.storage.postgres.driver_asyncpg import KNOWN, AsyncpgDriver
from postlude.storage.postgres.driver_psycopg import PsycopgDriver
from tests.source_tree import ROOT

DRIVERS = ["asyncpg", "psycopg"]


@pytest.mark.parametrize(
    ("scheme", "driver"),
    [
        ("postgresql", "asyncpg"),
        ("postgres", "asyncpg"),
        ("postgresql+psycopg2", "asyncpg"),
        ("postgresql+asyncpg", "asyncpg"),
        ("postgresql+psycopg", "psycopg"),
        ("POSTGRESQL+PSYCOPG", "psycopg"),
    ],
)
def test_the_url_chooses(scheme: str, driver: str) -> None:
    store: Any = Postlude(f"{scheme}://u@h/d", settings=Settings.load(environ={})).store
    assert store.database.driver.name == driver


@pytest.mark.parametrize("asked", DRIVERS)
def test_a_driver_that_is_not_installed_is_replaced_by_the_other(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError(asked)

    monkeypatch.setitem(choice.DRIVERS, asked, missing)
    (other,) = set(DRIVERS) - {asked}
    assert choice.open_driver("postgresql://h/d", asked).name == other


def test_a_fault_of_our_own_is_not_taken_for_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ImportError("no such name", name="postlude.core")

    monkeypatch.setitem(choice.DRIVERS, "asyncpg", broken)
    with pytest.raises(ImportError, match="no such name"):
        choice.open_driver("postgresql://h/d")


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("", {}),
        ("?sslmode=verify-full&sslrootcert=%2Fca.pem", {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}),
        ("?ssl=require", {"sslmode": "require"}),
        ("?ssl=true", {"sslmode": "require"}),
        ("?ssl=False", {"sslmode": "disable"}),
        ("?ssl=require&sslmode=require", {"sslmode": "require"}),
        ("?database=d&host=%2Frun", {"dbname": "d", "host": "/run"}),
        ("?application_name=shop&connect_timeout=3", {"application_name": "shop", "connect_timeout": "3"}),
        ("?options=-c%20search_path%3Dx", {"options": "-c search_path=x"}),
    ],
)
def test_parameters_are_read_in_every_spelling(query: str, read: dict[str, str]) -> None:
    assert url_parameters.read(f"postgresql://u@h:1/d{query}", "asyncpg", KNOWN) == ("postgresql://u@h:1/d", read)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("query", "said", "hint"),
    [
        ("ssl_mode=require", "does not know: ssl_mode", "sslmode"),
        ("statement_timeout=5", "does not know: statement_timeout", "options"),
        ("sslmode=maybe", "sslmode=maybe", "verify-full"),
        ("ssl=maybe", "ssl=maybe", "verify-full"),
        ("ssl=require&sslmode=disable", "sslmode twice", "Keep one"),
        ("connect_timeout=soon", "connect_timeout", "connect_timeout=10"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(driver: str, query: str, said: str, hint: str) -> None:
    with pytest.raises(BadUrl, match=said) as refused:
        _ = Postlude(f"postgresql+{driver}://u:secret@h/d?{query}", settings=Settings.load(environ={})).store
    assert hint in refused.value.hint
    assert "secret" not in str(refused.value)


def test_what_only_libpq_knows_is_refused_for_asyncpg() -> None:
    url = "postgresql://h/d?keepalives_idle=5"
    with pytest.raises(BadUrl, match="asyncpg does not know: keepalives_idle"):
        AsyncpgDriver(url, SessionOptions())
    assert PsycopgDriver(url, SessionOptions()).name == "psycopg"


def test_what_libpq_cannot_read_is_refused_without_its_words() -> None:
    with pytest.raises(BadUrl) as refused:
        PsycopgDriver("postgresql://u:sec%zzret@h/d", SessionOptions())
    assert "sec" not in str(refused.value)
    assert refused.value.__cause__ is None


class Said(Exception):
    def __init__(self, state: str | None) -> None:
        super().__init__("as the server says it")
        self.sqlstate = state


class Lost(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (Said("42P01"), SchemaMissing),
        *((Said(code), DatabaseUnavailable) for code in ("08006", "53300", "57P01", "57014", "55P03", "25006")),
        *((Said(code), DatabaseUnavailable) for code in ("3D000", "28P01", "28000", "42704")),
        (Lost(), DatabaseUnavailable),
        (ConnectionRefusedError(), DatabaseUnavailable),
        (TimeoutError(), DatabaseUnavailable),
        *((Said(code), None) for code in ("40001", "40P01", "23505", "42601", None)),
        (ValueError(), None),
    ],
    ids=lambda given: getattr(given, "sqlstate", None) or getattr(given, "__name__", type(given).__name__),
)
def test_errors_mean_the_same_through_every_driver(error: Exception, meant: type[Exception] | None) -> None:
    found = faults.meaning(error, (Lost,))
    assert found is None if meant is None else type(found) is meant


def test_an_error_with_a_state_is_judged_by_it_whatever_its_class() -> None:
    """psycopg's serialisation failures are OperationalErrors, as lost connections are."""

    class Both(Said, Lost):
        pass

    assert faults.meaning(Both("40001"), (Lost,)) is None


def test_session_settings_stand_in_one_place() -> None:
    assert SessionOptions().settings == SESSION


def test_only_the_modules_of_a_driver_import_it() -> None:
    folder = ROOT / "src/postlude/storage/postgres"
    importing = {
        path.name
        for path in folder.glob("*.py")
        if re.search(r"^\s*(?:import|from) (?:asyncpg|psycopg)", path.read_text(), re.MULTILINE)
    }
    assert importing == {
        "driver_asyncpg.py", "driver_psycopg.py", "psycopg_connection.py", "psycopg_pool.py",
        "sync.py",  # for code without an event loop there is psycopg only
    }  # fmt: skip


@pytest.mark.parametrize("code", ["26000", "42P05"])
def test_a_pooler_that_comes_between_later_is_named(code: str) -> None:
    """Only then can a statement that we prepared be missing, or be there already."""

    class Refused(Exception):
        sqlstate = code

    meant = faults.meaning(Refused("prepared statement"), ())
    assert isinstance(meant, DatabaseUnavailable)
    assert "Restart this process" in meant.hint
