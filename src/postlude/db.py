"""The structure of one database, as its owner sees it."""

from __future__ import annotations

from postlude.core.lanes import LANES
from postlude.errors import SchemaMissing
from postlude.ports.store import Store
from postlude.ports.upkeep import SchemaStatus
from postlude.settings import Settings


class Db:
    """Upgrade, status, verify, print."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    async def upgrade(self, phase: str | None = None) -> list[str]:
        """Apply what is pending and make the first partitions; safe from many processes at once."""
        schema = self._store.schema
        stored = (await schema.status()).lanes
        applied = await schema.upgrade(phase, lanes=self._settings.lanes or stored or LANES)
        await self._store.upkeep.make_partitions(self._settings.retention.partitions_ahead_days)
        return applied

    async def status(self) -> SchemaStatus:
        return await self._store.schema.status()

    async def verify(self) -> list[str]:
        return await self._store.schema.verify()

    def grants(self, part: str, role: str) -> str:
        """What the owner of the tables runs so that a role may append, work or look."""
        return self._store.schema.grants(part, role)

    def sql(self) -> str:
        return self._store.schema.sql(lanes=self._settings.lanes or LANES)


async def made_ready(db: Db, dialect: str) -> SchemaStatus:
    """The schema, if this version can work on it."""
    status = await db.status()
    if status.pending and dialect == "sqlite":
        # An embedded file has no operator: it is simply made ready. What older code beside us may still need stays.
        await db.upgrade("pre" if status.version else None)
        status = await db.status()
    if any("_pre_" in step for step in status.pending) and status.version:
        raise SchemaMissing(
            f"the schema is at version {status.version}, this Postlude needs {', '.join(status.pending)}",
            hint="Run `postlude db upgrade --phase pre` before the new version is deployed.",
        )
    return status
