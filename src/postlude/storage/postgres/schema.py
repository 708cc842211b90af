"""The structure of the database: upgrade, status, verify, print."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import asyncpg

from postlude.errors import LanesDiffer
from postlude.ports.store import SchemaStatus
from postlude.storage.migrate import Migration, Phase, pending
from postlude.storage.postgres.connection import SESSION, Database, translated

# Upgrades from many processes queue up here; held for one transaction only, so transaction poolers are fine.
UPGRADE_LOCK = 7_309_417_256_081
TABLES = (
    "postlude_meta", "postlude_event", "postlude_event_default", "postlude_delivery", "postlude_transition",
    "postlude_receipt", "postlude_receipt_default", "postlude_worker", "postlude_lane", "postlude_destination",
    "postlude_audit", "postlude_audit_link", "postlude_migration",
)  # fmt: skip
INDEXES = (
    "postlude_delivery_hot", "postlude_delivery_due", "postlude_delivery_block", "postlude_delivery_dead",
    "postlude_delivery_event", "postlude_receipt_event", "postlude_event_subject",
)  # fmt: skip
TRIGGERS = ("postlude_delivery_lifecycle", "postlude_delivery_birth")


class PostgresSchema:
    def __init__(self, database: Database, migrations: Sequence[Migration], schema: str) -> None:
        self._database = database
        self._migrations = migrations
        self._schema = schema
        self._quoted = '"' + schema.replace('"', '""') + '"'

    async def status(self) -> SchemaStatus:
        with translated():
            connection = await self._connect()
        try:
            return await self._status(connection)
        finally:
            await connection.close()

    async def upgrade(self, phase: str | None = None, *, lanes: int) -> list[str]:
        only: Phase | None = None if phase is None else ("pre" if phase == "pre" else "post")
        with translated():
            connection = await self._connect()
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", UPGRADE_LOCK)
                return await self._upgrade(connection, only, lanes)
        finally:
            await connection.close()

    async def verify(self) -> list[str]:
        with translated():
            connection = await self._connect()
        try:
            return [*await self._missing(connection), *await self._wrong(connection)]
        finally:
            await connection.close()

    def sql(self, *, lanes: int) -> str:
        head = f"CREATE SCHEMA IF NOT EXISTS {self._quoted};\n{self._ledger()};\n"
        steps = [f"{step.sql}\n{self._applied(step)};" for step in self._migrations]
        known = f"('lanes', '{lanes}'), ('installation', replace(gen_random_uuid()::text, '-', ''))"
        meta = f"INSERT INTO {self._quoted}.postlude_meta (name, value) VALUES {known} ON CONFLICT DO NOTHING;"  # noqa: S608
        return "\n".join([head, *steps, meta])

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(self._database.dsn, timeout=10, server_settings=SESSION)

    async def _upgrade(
        self, connection: asyncpg.Connection[asyncpg.Record], phase: Phase | None, lanes: int
    ) -> list[str]:
        await connection.execute("SET LOCAL client_min_messages = warning")
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._quoted}")
        await connection.execute(self._ledger())
        steps = pending(self._migrations, await self._applied_steps(connection), phase)
        for step in steps:
            await connection.execute(step.sql)
            await connection.execute(self._applied(step))
        await self._install(connection, lanes)
        return [f"{step.number:04d}_{step.phase}_{step.name}" for step in steps]

    async def _install(self, connection: asyncpg.Connection[asyncpg.Record], lanes: int) -> None:
        insert = f"INSERT INTO {self._quoted}.postlude_meta (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING"  # noqa: S608
        await connection.execute(insert, "lanes", str(lanes))
        await connection.execute(insert, "installation", uuid4().hex)
        stored = await self._meta(connection, "lanes")
        if stored != str(lanes):
            raise LanesDiffer(f"the schema was installed with {stored} lanes, the settings say {lanes}")

    async def _status(self, connection: asyncpg.Connection[asyncpg.Record]) -> SchemaStatus:
        newest = self._migrations[-1].number
        there = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{self._quoted}.postlude_migration")
        applied = await self._applied_steps(connection) if there else {}
        steps = pending(self._migrations, applied)
        lanes = await self._meta(connection, "lanes") if applied else None
        return SchemaStatus(
            version=max(applied, default=0),
            newest=newest,
            pending=tuple(f"{step.number:04d}_{step.phase}_{step.name}" for step in steps),
            lanes=int(lanes) if lanes else None,
            installation=await self._meta(connection, "installation") if applied else None,
        )

    async def _applied_steps(self, connection: asyncpg.Connection[asyncpg.Record]) -> dict[int, str]:
        found = await connection.fetch(f"SELECT number, phase FROM {self._quoted}.postlude_migration")  # noqa: S608
        return {row[0]: row[1] for row in found}

    async def _meta(self, connection: asyncpg.Connection[asyncpg.Record], name: str) -> str | None:
        sql = f"SELECT value FROM {self._quoted}.postlude_meta WHERE name = $1"  # noqa: S608
        value = await connection.fetchval(sql, name)
        return None if value is None else str(value)

    def _ledger(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self._quoted}.postlude_migration (number integer PRIMARY KEY,"
            " phase text NOT NULL, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )

    def _applied(self, step: Migration) -> str:
        table = f"{self._quoted}.postlude_migration"
        return f"INSERT INTO {table} (number, phase, name) VALUES ({step.number}, '{step.phase}', '{step.name}')"  # noqa: S608

    async def _missing(self, connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
        problems = []
        for kind, names in (("table", TABLES), ("index", INDEXES)):
            for name in names:
                there = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{self._quoted}.{name}")
                if not there:
                    problems.append(f"{kind} {name} is missing; run `postlude db upgrade`")
        return problems

    async def _wrong(self, connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
        problems = []
        cache = await connection.fetchval(
            "SELECT cache_size FROM pg_sequences WHERE schemaname = $1 AND sequencename = 'postlude_delivery_seq_seq'",
            self._schema,
        )
        if cache not in (None, 1):
            problems.append(f"the sequence of deliveries caches {cache} values, which breaks order; set CACHE 1")
        enabled = await connection.fetch(
            "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'postlude_delivery' AND t.tgenabled <> 'D'",
            self._schema,
        )
        names = {row[0] for row in enabled}
        problems += [f"trigger {name} is missing or disabled" for name in TRIGGERS if name not in names]
        return problems
