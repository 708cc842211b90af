"""One database for many tests: what leaves nothing behind but rows needs none of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.databases import Databases, Server

TABLES = ("delivery", "receipt", "event", "lane", "worker", "destination")
THEIRS = ("effect", "orders", "counter")
"""Tables that tests make."""


class Swept:
    """On each server one, without rows whenever it is asked for."""

    def __init__(self, servers: Mapping[str, Server], templates: Mapping[str, str], sqlite: Path, folder: Path) -> None:
        self._servers = servers
        self._templates = templates
        self._sqlite = sqlite
        self._folder = folder
        self._urls: dict[str, str] = {}
        self._files = 0

    def on(self, name: str) -> str:
        return self._file() if name == "sqlite" else self._database(name)

    def _file(self) -> str:
        """A new one each time: that costs less than to sweep."""
        self._files += 1
        path = self._folder / f"{self._files}.db"
        with closing(sqlite3.connect(self._sqlite)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)
        return f"sqlite:///{path}"

    def _database(self, name: str) -> str:
        server = self._servers[name]
        if name not in self._urls:
            self._urls[name] = server.url(server.make(self._templates[name]))
        with psycopg.connect(self._urls[name], autocommit=True) as connection:
            # Not TRUNCATE: a few rows are gone sooner than the files of every partition are made anew.
            connection.execute(";".join(f"DELETE FROM postlude_{table}" for table in TABLES))
            connection.execute(f"DROP TABLE IF EXISTS {', '.join(THEIRS)}")
        return self._urls[name]

    def drop_all(self) -> None:
        for name, url in self._urls.items():
            self._servers[name].drop(url.rpartition("/")[2])


@pytest.fixture(scope="session")
def swept(
    servers: Mapping[str, Server],
    postgres_template: Mapping[str, str],
    sqlite_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Swept]:
    databases = Swept(servers, postgres_template, sqlite_template, tmp_path_factory.mktemp("swept"))
    yield databases
    databases.drop_all()


@pytest.fixture
def swept_url(swept: Swept, databases_on: Callable[[str], Databases]) -> Callable[[str], str]:
    """The URL of a database without rows, by the name of its server, which goes into the account of servers."""

    def on(name: str) -> str:
        databases_on(name)
        return swept.on(name)

    return on
