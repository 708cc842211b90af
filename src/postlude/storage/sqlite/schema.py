"""The structure of the database: upgrade, status, verify, print."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from uuid import uuid4

from postlude.errors import ConfigurationError, LanesDiffer
from postlude.ports.upkeep import SchemaStatus
from postlude.storage.migrate import Migration, Phase, pending
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session

LEDGER = (
    "CREATE TABLE IF NOT EXISTS postlude_migration (number INTEGER PRIMARY KEY, phase TEXT NOT NULL,"
    " name TEXT NOT NULL, applied_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0))"
)


class SqliteSchema:
    def __init__(self, database: Database, migrations: Sequence[Migration]) -> None:
        self._database = database
        self._migrations = migrations

    async def status(self) -> SchemaStatus:
        return await self._database.read(self._status)

    async def upgrade(self, phase: str | None = None, *, lanes: int) -> list[str]:
        """In one transaction: of many processes the first applies it, the others find it done."""
        only: Phase | None = None if phase is None else ("pre" if phase == "pre" else "post")
        return await self._database.write(partial(self._upgrade, phase=only, lanes=lanes))

    async def verify(self) -> list[str]:
        return await self._database.read(self._verify)

    def sql(self, *, lanes: int) -> str:
        steps = [f"{step.sql}\n{_applied(step)};\n" for step in self._migrations]
        known = f"('lanes', '{lanes}'), ('installation', lower(hex(randomblob(16))))"
        meta = f"INSERT OR IGNORE INTO postlude_meta (name, value) VALUES {known};\n"  # noqa: S608 - no word of others
        return "\n".join([f"{LEDGER};\n", *steps, meta])

    def grants(self, part: str, role: str) -> str:
        raise ConfigurationError(
            f"SQLite has no roles, so {role} cannot be made for {part}",
            hint="Whoever may write the file may do everything: guard the file.",
        )

    def _status(self, session: Session) -> SchemaStatus:
        applied = _applied_steps(session.connection)
        meta = _meta(session.connection) if applied else {}
        return SchemaStatus(
            version=max(applied, default=0),
            newest=self._migrations[-1].number,
            pending=tuple(_title(step) for step in pending(self._migrations, applied)),
            lanes=int(meta["lanes"]) if "lanes" in meta else None,
            installation=meta.get("installation"),
        )

    def _upgrade(self, session: Session, *, phase: Phase | None, lanes: int) -> list[str]:
        connection = session.connection
        connection.execute(LEDGER)
        steps = pending(self._migrations, _applied_steps(connection), phase)
        for step in steps:
            _apply(connection, step)
        insert = "INSERT INTO postlude_meta (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
        connection.executemany(insert, [("lanes", str(lanes)), ("installation", uuid4().hex)])
        stored = _meta(connection)["lanes"]
        if stored != str(lanes):
            raise LanesDiffer(f"the schema was installed with {stored} lanes, the settings say {lanes}")
        return [_title(step) for step in steps]

    def _verify(self, session: Session) -> list[str]:
        """Compare with what the applied migrations make of an empty database."""
        applied = _applied_steps(session.connection)
        there = _objects(session.connection)
        problems = [f"migration {_title(step)} is pending" for step in pending(self._migrations, applied)]
        for (kind, name), sql in self._expected(applied).items():
            if (kind, name) not in there:
                problems.append(f"{kind} {name} is missing")
            elif there[kind, name] != sql:
                problems.append(f"{kind} {name} is not as it was made")
        return problems

    def _expected(self, applied: Collection[int]) -> dict[tuple[str, str], str]:
        model = sqlite3.connect(":memory:")
        try:
            model.execute(LEDGER)
            for step in self._migrations:
                if step.number in applied:
                    _apply(model, step)
            return _objects(model)
        finally:
            model.close()


def split(script: str) -> Iterator[str]:
    """The statements of a script. `executescript` would do, but it commits what is open."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _apply(connection: sqlite3.Connection, step: Migration) -> None:
    for statement in split(step.sql):
        connection.execute(statement)
    connection.execute(_applied(step))


def _applied(step: Migration) -> str:
    values = f"({step.number}, '{step.phase}', '{step.name}')"
    return f"INSERT INTO postlude_migration (number, phase, name) VALUES {values}"  # noqa: S608 - a file's name, letters only


def _title(step: Migration) -> str:
    return f"{step.number:04d}_{step.phase}_{step.name}"


def _applied_steps(connection: sqlite3.Connection) -> dict[int, str]:
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'postlude_migration'").fetchone()
    return dict(connection.execute("SELECT number, phase FROM postlude_migration").fetchall()) if there else {}


def _meta(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM postlude_meta").fetchall())


def _objects(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    found = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name LIKE 'postlude!_%' ESCAPE '!'")
    return {(kind, name): sql for kind, name, sql in found}
