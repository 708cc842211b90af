"""The structure of one database, as its owner sees it."""

from __future__ import annotations

from postlude.core.lanes import LANES
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
