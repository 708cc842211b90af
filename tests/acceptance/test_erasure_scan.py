"""Marked personal data is planted wherever it can get to; after the erasure it is nowhere any more.

Looked at: every column of every table, every line that was logged meanwhile, counters, the copy of the audit trail, and
what every command prints.
"""

from __future__ import annotations

import logging
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from postlude import (
    Context,
    Correction,
    Erasure,
    Event,
    Ok,
    Postlude,
    ResolverError,
    Retry,
    Saga,
    Settings,
    SubjectRef,
    event,
)
from tests.acceptance.cli_shop import ONE_OF_EACH
from tests.acceptance.test_cli_secrets import COMMANDS, ON_A_DATABASE
from tests.databases import Databases
from tests.source_tree import ROOT

MARK = "zq7marked"
SUBJECT = f"person-{MARK}"
WRITING = ("db upgrade", "demo", "run", "init", "maintenance run")
"""Commands that are not asked: they do something else than show."""


@event(type="scan.placed", key="customer", subjects=("customer",))
class Placed(Event):
    customer: str
    email: str


@event(type="scan.broken", subjects=("customer",))
class Broken(Event):
    customer: str
    note: str


class Vendor:
    """Raises what a careless client would: the message names the subject."""

    def __init__(self, name: str, error: type[Exception] | None) -> None:
        self.name = name
        self._error = error
        self.seen: list[object] = []

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        await self._meet(ref, idempotency_key)
        return Erasure()

    async def rectify_subject(self, ref: SubjectRef, corrections: Any, *, idempotency_key: str) -> None:
        await self._meet((ref, corrections), idempotency_key)

    async def verify_absent(self, ref: SubjectRef) -> bool:
        raise LookupError(f"cannot see {ref.value}")

    async def _meet(self, whom: object, key: str) -> None:
        self.seen.append(whom)
        if self._error is not None:
            raise self._error(f"{whom!r} under {key}")


class Known(Event):
    """The state of a saga."""

    email: str


async def remember(known: Known, ctx: Context) -> Ok[str]:
    return Ok(f"remembered {known.email}")


TOUR = Saga("scan_tour", state=Known).step(remember, undo=None)


def make_app(url: str, copy: Path, pending: str) -> Postlude:
    settings = Settings.load(environ={}, audit={"file": str(copy)}, erasure={"pending": pending})
    app = Postlude(url, settings=settings)
    app.resolvers.register(Vendor("good", None))
    app.resolvers.register(Vendor("stern", ResolverError))
    app.sagas.register(TOUR)

    @app.on(Placed, name="fine")
    async def fine(placed: Placed) -> None: ...

    @app.on(Broken, name="breaks", retry=Retry(max_attempts=1))
    async def breaks(broken: Broken) -> None:
        raise ValueError(f"{broken.note} of {broken.customer}")

    return app


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.mark.parametrize("pending", ["publish_first", "discard"])
async def test_nothing_is_left_of_a_subject(url, tmp_path, caplog, pending) -> None:
    caplog.set_level(logging.DEBUG, logger="postlude")
    copy = tmp_path / "audit.jsonl"
    app = make_app(url, copy, pending)
    async with app:
        await _plant(app)
        assert await _places(app, url), "nothing was planted, so nothing could be found"
        await _erase(app)
        await app.audit.verify()
        await app.maintenance.run("chain")
        assert not await _places(app, url)
        assert MARK not in repr(await app.erasure.gauges())
        assert MARK not in repr(await app.insight.counts())
        assert MARK not in copy.read_text()
        assert "erasure_completed" in copy.read_text()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("postlude")]
    assert said
    assert not [line for line in said if MARK in line]
    _scan_commands(url, tmp_path)


async def _plant(app: Postlude) -> None:
    """In payloads, keys, headers, correlation ids, errors, the state of a saga, corrections and references."""
    async with app.transaction() as tx:
        mail = f"{MARK}@example.com"
        await app.outbox.append(tx, Placed(customer=SUBJECT, email=mail), headers={"x-user": mail}, correlation_id=mail)
        await app.outbox.append(tx, Broken(customer=SUBJECT, note=mail))
        await app.sagas.start(tx, TOUR, Known(email=mail), id=SUBJECT)
        refs = [SubjectRef("good", f"cus_{MARK}", {"mail": mail}), SubjectRef("stern", f"cus_{MARK}")]
        await app.erasure.rectify_subject(tx, SUBJECT, [Correction("email", mail)], refs)
    await app.drain(30)


async def _erase(app: Postlude) -> None:
    async with app.transaction() as tx:
        await app.outbox.append(tx, Placed(customer=SUBJECT, email=f"late {MARK}"))
        await app.erasure.erase_subject(tx, SUBJECT, [SubjectRef("good", f"cus_{MARK}")], reason="asked for it")
    await app.drain(30)
    # The rectification that a vendor refused for good is given up: an erased subject needs no correction.
    left = await app.erasure.list_abandoned()
    await app.actions.discard([call.entry_id for call in left], actor="mira", reason="the subject is erased")
    await app.drain(30)
    story = await app.erasure.show(SUBJECT)
    assert [one.status for one in story.requests] == ["completed", "completed"]


async def _places(app: Postlude, url: str) -> list[str]:
    """Where the mark stands: `table.column`."""
    return _in_sqlite(url) if app.store.dialect == "sqlite" else await _in_postgres(url)


def _in_sqlite(url: str) -> list[str]:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.text_factory = bytes
        found = []
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            cursor = connection.execute(f'SELECT * FROM "{table.decode()}"')
            for row in cursor:
                found += [
                    f"{table.decode()}.{column[0]}"
                    for column, value in zip(cursor.description, row, strict=True)
                    if isinstance(value, bytes) and MARK.encode() in value
                ]
    connection.close()
    return found


async def _in_postgres(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT c.relname, a.attname, a.atttypid = 'bytea'::regtype AS is_bytes FROM pg_class c"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
            " WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'postlude%'"
        )
        found = []
        for table, column, is_bytes in tables:
            text = f"encode(\"{column}\", 'escape')" if is_bytes else f'"{column}"::text'
            if await connection.fetchval(f'SELECT EXISTS (SELECT 1 FROM "{table}" WHERE {text} LIKE $1)', f"%{MARK}%"):
                found.append(f"{table}.{column}")
        return found
    finally:
        await connection.close()


def _scan_commands(url: str, folder: Path) -> None:
    asked = [name for name in ON_A_DATABASE if name not in WRITING]
    assert "erasure list" in asked
    script = ["from postlude.cli.main import execute"]
    script += [f"execute({[*COMMANDS[name], '--database', url]!r})" for name in asked]
    command = [sys.executable, "-c", "\n".join(script)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=_environment(folder))
    assert "erasure" in done.stdout, shlex.join(command)
    assert MARK not in done.stdout + done.stderr


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        "COLUMNS": "200",
        "HOME": str(folder),
    }
