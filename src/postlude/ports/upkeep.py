"""A database's maintenance and its own structure. The rules of `postlude.ports.store` hold."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class DutyRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a duty's turn."""

    rows: int
    seconds: float
    error: str | None = None
    next_in: float | None = None


class TableUse(msgspec.Struct, frozen=True):
    """What a table takes of the disk, its indexes and partitions included. None: this database cannot tell."""

    name: str
    bytes: int | None
    rows: int
    """An estimate."""
    partitions: int = 0


class Upkeep(Protocol):
    """Maintenance; one owner a duty, every step bounded and safe to repeat."""

    async def make_partitions(self, days: int) -> list[str]:
        """Make partitions ahead without ever making an append wait. Gives the names made."""

    async def retire_partitions(self, hours: int, receipts_hours: int | None = None) -> list[str]:
        """Empty partitions older than that, keeping what belongs to open work. Gives the names emptied. Receipts may
        have hours of their own; 0 hours keep for ever."""

    async def prune(
        self,
        *,
        events_hours: int,
        dead_hours: int,
        limit: int,
        receipts_hours: int | None = None,
        inbox_hours: int = 0,
    ) -> int:
        """Delete what is over its retention and lives in no partition. Gives the rows deleted, a saga with its history
        counting as one; 0 means done. 0 hours keep for ever. Ended sagas are kept as long as events."""

    async def duties(self) -> list[dict[str, Any]]:
        """Every duty that a worker ever had: name, owner, ran_at, next_at, rows, seconds, error."""

    async def record_duty(self, name: str, run: DutyRun) -> None: ...

    async def disk_use(self) -> list[TableUse]:
        """Our tables, the largest first."""


class Schema(Protocol):
    """The database's own structure."""

    async def status(self) -> SchemaStatus: ...
    async def upgrade(self, phase: str | None = None, *, lanes: int) -> list[str]:
        """Apply what is pending; safe from many processes at once. Gives the names applied."""

    async def verify(self) -> list[str]:
        """What is not as it should be, in words; empty when all is well."""

    def sql(self, *, lanes: int) -> str:
        """Everything an upgrade would do to an empty database, without connecting."""

    def grants(self, part: str, role: str) -> str:
        """What an owner runs so that a role may do one part (app, worker, redactor, viewer) and nothing more."""


class SchemaStatus(msgspec.Struct, frozen=True):
    """How far the schema is."""

    version: int
    newest: int
    pending: tuple[str, ...]
    lanes: int | None
    installation: str | None
