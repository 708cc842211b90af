"""Fresh databases for tests: made from a template with Postlude's schema, or empty, and gone afterwards."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

OWN = "POSTLUDE_TEST_POSTGRES"
MAJORS = (16, 18, 15)
T = TypeVar("T")


class Databases(Protocol):
    """Somewhere databases can be made."""

    name: str

    def fresh(self, *, schema: bool = True) -> str:
        """The URL of a database nobody else has, with Postlude's schema in it or with nothing at all."""


class SqliteDatabases:
    """Files in a test's own folder."""

    name = "sqlite"

    def __init__(self, folder: Path, template: Path) -> None:
        self._folder = folder
        self._template = template

    def fresh(self, *, schema: bool = True) -> str:
        path = self._folder / f"{uuid4().hex[:8]}.db"
        if schema:
            copy_of(self._template, path)
        return f"sqlite:///{path}"


def copy_of(template: Path, path: Path) -> None:
    """Not a copy of the file: that would miss what still stands in a write-ahead log."""
    with closing(sqlite3.connect(template)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server the tests were told of; without an address, the reason why there is none."""

    name: str
    dsn: str = ""
    missing: str = ""

    @cached_property
    def version(self) -> str:
        return str(self._administrator.info.parameter_status("server_version")).split()[0]

    def url(self, database: str) -> str:
        """The address of another database on the same server."""
        return urlsplit(self.dsn)._replace(path=f"/{database}").geturl()

    def run(self, statement: str) -> None:
        """An administrator's statement, outside any transaction."""
        try:
            self._administrator.execute(statement.encode())
        except BaseException:
            self.close()  # whatever has interrupted it, the next one begins anew
            raise

    @cached_property
    def _administrator(self) -> psycopg.Connection:
        """One for all tests of this process: a new session would cost as much as the database that it makes."""
        return psycopg.connect(self.dsn, autocommit=True)

    def close(self) -> None:
        if connection := self.__dict__.pop("_administrator", None):
            connection.close()

    def make(self, template: str = "template0") -> str:
        name = f"postlude_test_{uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, database: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


class PostgresDatabases:
    """Databases on one server, dropped at the end of the test."""

    def __init__(self, server: Server, templates: Mapping[str, str]) -> None:
        self.name = server.name
        self.server = server
        self._templates = templates
        self._made: list[str] = []

    def fresh(self, *, schema: bool = True) -> str:
        return self.copy_of(self._templates[self.server.name] if schema else "template0")

    def copy_of(self, template: str) -> str:
        database = self.server.make(template)
        self._made.append(database)
        return self.server.url(database)

    def drop_all(self) -> None:
        for database in self._made:
            self.server.drop(database)


class PostgresTemplates(dict[str, str]):
    """The name of a database with Postlude's schema, by server; made when a test first asks for it."""

    def __init__(self, servers: Mapping[str, Server], install: Callable[[str], None] | None = None) -> None:
        self._servers = servers
        self._install = install or install_schema

    def __missing__(self, name: str) -> str:
        server = self._servers[name]
        self[name] = server.make()
        self._install(server.url(self[name]))
        return self[name]

    def drop_all(self) -> None:
        for name, database in self.items():
            self._servers[name].drop(database)


def configured_servers(env: Mapping[str, str] = os.environ) -> list[Server]:
    """What `dev test` started, or the user's own server instead of all of it."""
    if OWN in env:
        return [Server("postgres-own", env[OWN])]
    usual = "not running; start the tests with `python3 dev test`, or name your own server in " + OWN
    wanted = env.get(f"{OWN}_MAJORS", " ".join(map(str, MAJORS))).split()
    return [
        Server(f"postgres-{major}", env.get(f"{OWN}_{major}", ""), env.get(f"{OWN}_{major}_MISSING", usual))
        for major in wanted
    ]


def install_schema(url: str) -> None:
    """Let Postlude write its tables, as `postlude db upgrade` does."""
    from postlude import Postlude, Settings

    # A database is copied for every test: two days of partitions are a third of the files of fourteen.
    settings = Settings.load(environ={}, retention={"partitions_ahead_days": 1})

    async def upgrade() -> None:
        app = Postlude(url, settings=settings)
        try:
            await app.db.upgrade()
        finally:
            await app.close()

    finish(upgrade())


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end in a loop of its own, whether or not the test has one running."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()
