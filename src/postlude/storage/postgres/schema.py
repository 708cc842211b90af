"""The structure of the database: upgrade, status, verify, print."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from postlude.errors import LanesDiffer
from postlude.ports.upkeep import SchemaStatus
from postlude.storage.migrate import Migration, Phase, pending
from postlude.storage.postgres.connection import Database
from postlude.storage.postgres.roles import grants

# Upgrades from many processes queue up here; held for one transaction only, so transaction poolers are fine.
UPGRADE_LOCK = 7_309_417_256_081
TABLES = (
    "postlude_meta", "postlude_event", "postlude_event_default", "postlude_delivery", "postlude_transition",
    "postlude_receipt", "postlude_receipt_default", "postlude_worker", "postlude_lane", "postlude_destination",
    "postlude_audit", "postlude_audit_link", "postlude_operation", "postlude_duty", "postlude_inbox",
    "postlude_consumer", "postlude_saga", "postlude_saga_step", "postlude_saga_subject",
    "postlude_migration",
)  # fmt: skip
INDEXES = (
    "postlude_delivery_hot", "postlude_delivery_due", "postlude_delivery_block", "postlude_delivery_dead",
    "postlude_delivery_event", "postlude_receipt_event", "postlude_event_subject", "postlude_operation_running",
    "postlude_inbox_received", "postlude_saga_process", "postlude_saga_live", "postlude_saga_status",
    "postlude_saga_created", "postlude_saga_ended", "postlude_event_saga",
)  # fmt: skip
TRIGGERS = ("postlude_delivery_lifecycle", "postlude_delivery_birth")


class PostgresSchema:
    def __init__(self, database: Database, migrations: Sequence[Migration], schema: str) -> None:
        self._database = database
        self._migrations = migrations
        self._schema = schema
        self._quoted = '"' + schema.replace('"', '""') + '"'

    async def status(self) -> SchemaStatus:
        async with self._connection() as connection:
            return await self._status(connection)

    async def upgrade(self, phase: str | None = None, *, lanes: int) -> list[str]:
        only: Phase | None = None if phase is None else ("pre" if phase == "pre" else "post")
        async with self._connection() as connection, connection.transaction():
            await self._database.ask(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=UPGRADE_LOCK)
            return await self._upgrade(connection, only, lanes)

    async def verify(self) -> list[str]:
        async with self._connection() as connection:
            return [*await self._missing(connection), *await self._wrong(connection)]

    def sql(self, *, lanes: int) -> str:
        head = f"CREATE SCHEMA IF NOT EXISTS {self._quoted};\n{self._ledger()};\n"
        steps = [f"{step.sql}\n{self._applied(step)};" for step in self._migrations]
        known = f"('lanes', '{lanes}'), ('installation', replace(gen_random_uuid()::text, '-', ''))"
        meta = f"INSERT INTO {self._quoted}.postlude_meta (name, value) VALUES {known} ON CONFLICT DO NOTHING;"  # noqa: S608
        return "\n".join([head, *steps, meta])

    def grants(self, part: str, role: str) -> str:
        return grants(part, role, self._quoted)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await self._database.connect()
        try:
            yield connection
        finally:
            await self._database.driver.close(connection)

    async def _upgrade(self, connection: Any, phase: Phase | None, lanes: int) -> list[str]:
        execute = self._database.driver.execute
        await execute(connection, "SET LOCAL client_min_messages = warning")
        await execute(connection, f"CREATE SCHEMA IF NOT EXISTS {self._quoted}")
        await execute(connection, self._ledger())
        steps = pending(self._migrations, await self._applied_steps(connection), phase)
        for step in steps:
            await execute(connection, step.sql)
            await execute(connection, self._applied(step))
        await self._install(connection, lanes)
        return [f"{step.number:04d}_{step.phase}_{step.name}" for step in steps]

    async def _install(self, connection: Any, lanes: int) -> None:
        insert = f"INSERT INTO {self._quoted}.postlude_meta (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING"  # noqa: S608
        await self._database.ask(connection, insert, name="lanes", value=str(lanes))
        await self._database.ask(connection, insert, name="installation", value=uuid4().hex)
        stored = await self._meta(connection, "lanes")
        if stored != str(lanes):
            raise LanesDiffer(f"the schema was installed with {stored} lanes, the settings say {lanes}")

    async def _status(self, connection: Any) -> SchemaStatus:
        newest = self._migrations[-1].number
        there = await self._is_there(connection, "postlude_migration")
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

    async def _applied_steps(self, connection: Any) -> dict[int, str]:
        found = await self._database.ask(connection, f"SELECT number, phase FROM {self._quoted}.postlude_migration")  # noqa: S608
        return {row[0]: row[1] for row in found}

    async def _meta(self, connection: Any, name: str) -> str | None:
        sql = f"SELECT value FROM {self._quoted}.postlude_meta WHERE name = :name"  # noqa: S608
        value = await self._database.value(connection, sql, name=name)
        return None if value is None else str(value)

    async def _is_there(self, connection: Any, name: str) -> bool:
        sql = "SELECT to_regclass(:name) IS NOT NULL"
        return bool(await self._database.value(connection, sql, name=f"{self._quoted}.{name}"))

    def _ledger(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self._quoted}.postlude_migration (number integer PRIMARY KEY,"
            " phase text NOT NULL, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )

    def _applied(self, step: Migration) -> str:
        table = f"{self._quoted}.postlude_migration"
        return f"INSERT INTO {table} (number, phase, name) VALUES ({step.number}, '{step.phase}', '{step.name}')"  # noqa: S608

    async def _missing(self, connection: Any) -> list[str]:
        kinds = (("table", TABLES), ("index", INDEXES))
        return [
            f"{kind} {name} is missing; run `postlude db upgrade`"
            for kind, names in kinds
            for name in names
            if not await self._is_there(connection, name)
        ]

    async def _wrong(self, connection: Any) -> list[str]:
        problems = []
        cache = await self._database.value(
            connection,
            "SELECT cache_size FROM pg_sequences"
            " WHERE schemaname = :schema AND sequencename = 'postlude_delivery_seq_seq'",
            schema=self._schema,
        )
        if cache not in (None, 1):
            problems.append(f"the sequence of deliveries caches {cache} values, which breaks order; set CACHE 1")
        enabled = await self._database.ask(
            connection,
            "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = 'postlude_delivery' AND t.tgenabled <> 'D'",
            schema=self._schema,
        )
        names = {row[0] for row in enabled}
        problems += [f"trigger {name} is missing or disabled" for name in TRIGGERS if name not in names]
        return problems
