"""Partitions of events and receipts, made ahead and retired so that no append ever waits.

Every lock that could make an append wait is asked for with a short lock_timeout, so a long reader only delays the duty.
`ATTACH` after a validated check takes a weak lock; `TRUNCATE` locks one old partition; `DETACH` is never urgent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from postlude.core.uuid7 import first_of
from postlude.storage.postgres.connection import Database
from postlude.storage.postgres.faults import DEADLOCK, NO_LOCK, NO_OBJECT, NO_TABLE, state

Connection: TypeAlias = Any
EVENTS = "postlude_event"
PARENTS = (EVENTS, "postlude_receipt")
SAFE_DAYS_AHEAD = 7
"""While a range is being attached, appends with ids in it are refused: so it must lie in the future."""
MAX_SURVIVORS = 10_000
LOCK_TIMEOUT = "50ms"
_NAME = re.compile(r"postlude_(?:event|receipt)_(\d{8})")


class Partitions:
    """Days of one schema."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._quoted = '"' + schema.replace('"', '""') + '"'
        self._lock = f"postlude partitions {schema}"

    async def make(self, days: int) -> list[str]:
        """Attach the missing days ahead. On an empty log today's range is safe too: nothing is there to be refused."""
        made = []
        async with self._database.connection() as connection:
            with self._database.translated():
                today = await self._today(connection)
                for parent in PARENTS:
                    there = set(await self._names(connection, parent))
                    fresh = not there and await self._is_empty(connection, parent)
                    for ahead in range(0 if fresh else SAFE_DAYS_AHEAD, days + 1):
                        day = _Day(self._quoted, parent, today + timedelta(days=ahead))
                        if day.name not in there and await self._attach(connection, day, at_once=fresh):
                            made.append(day.name)
        return made

    async def retire(self, events_hours: int, receipts_hours: int) -> list[str]:
        """Empty the days that ended that long ago; drop those that were empty already. 0 hours keep for ever."""
        retired = []
        kept = {
            parent: hours for parent, hours in zip(PARENTS, (events_hours, receipts_hours), strict=True) if hours > 0
        }
        async with self._database.connection() as connection:
            with self._database.translated():
                for parent, hours in kept.items():
                    oldest = await self._today(connection, hours)
                    for name in await self._names(connection, parent):
                        if _day(name) + timedelta(days=1) <= oldest and await self._retire(connection, parent, name):
                            retired.append(name)  # noqa: PERF401 - an await for each
        return retired

    async def _attach(self, connection: Connection, day: _Day, *, at_once: bool) -> bool:
        """Every step may be repeated after a crash, or by a second worker that was woken after its lease ended.
        `at_once` is for an empty log, where all of it takes no time."""
        try:
            if not at_once:
                async with self._alone(connection, day):
                    await self._prepare(connection, day)
                if not await self._database.value(connection, day.came_early):
                    await self._execute(connection, day.validate)
            async with self._alone(connection, day):
                if at_once:
                    await self._prepare(connection, day)
                # Ids of that range that came early (clocks ahead, ids that are no v7) move along in this transaction.
                for step in (day.move, day.validate, day.attach, day.let_in):
                    await self._execute(connection, step)
        except _InUse:
            return False
        except self._database.driver.errors as error:
            if state(error) in (NO_LOCK, DEADLOCK, NO_OBJECT):
                return False  # for now, or because another worker made it meanwhile
            raise
        return True

    @asynccontextmanager
    async def _alone(self, connection: Connection, day: _Day) -> AsyncIterator[None]:
        """Nobody else makes partitions meanwhile, and this one is still to be made."""
        async with self._brief(connection):
            sql = "SELECT pg_advisory_xact_lock(hashtextextended(:lock, 0))"
            await self._database.ask(connection, sql, lock=self._lock)
            if day.name in await self._names(connection, day.parent):
                raise _InUse
            yield

    @asynccontextmanager
    async def _brief(self, connection: Connection) -> AsyncIterator[None]:
        async with connection.transaction():
            await self._execute(connection, f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            yield

    async def _prepare(self, connection: Connection, day: _Day) -> None:
        await self._execute(connection, day.create)
        sql = "SELECT EXISTS (SELECT 1 FROM pg_constraint WHERE conname = :name AND conrelid = :of::text::regclass)"
        if not await self._database.value(connection, sql, name=f"not_{day.name}", of=day.default):
            await self._execute(connection, day.keep_out)

    async def _retire(self, connection: Connection, parent: str, name: str) -> bool:
        part = f"{self._quoted}.{name}"
        try:
            if await self._database.value(connection, f"SELECT NOT EXISTS (SELECT 1 FROM {part})"):  # noqa: S608
                return await self._detach(connection, parent, name)
            async with self._brief(connection):
                # Of events there is more to be read before TRUNCATE: nobody writes or locks one, but readers go on till then.
                mode = "EXCLUSIVE" if parent == EVENTS else "ACCESS EXCLUSIVE"
                await self._execute(connection, f"LOCK TABLE {part} IN {mode} MODE")
                needed = (
                    f"SELECT p.* FROM {part} p WHERE EXISTS (SELECT 1 FROM {self._quoted}.postlude_delivery d"  # noqa: S608
                    f" WHERE d.event_id = p.event_id) LIMIT {MAX_SURVIVORS + 1}"
                )
                await self._execute(connection, f"CREATE TEMP TABLE postlude_kept ON COMMIT DROP AS {needed}")
                if await self._database.value(connection, "SELECT count(*) FROM postlude_kept") > MAX_SURVIVORS:
                    raise _TooMany
                if parent == EVENTS:
                    await self._execute(connection, _remember(self._quoted, part))
                await self._execute(connection, f"TRUNCATE {part}")
                await self._execute(connection, f"INSERT INTO {part} SELECT * FROM postlude_kept")  # noqa: S608
        except (_TooMany, _InUse):
            return False
        except self._database.driver.errors as error:
            if state(error) in (NO_LOCK, DEADLOCK, NO_TABLE):
                return False
            raise
        return True

    async def _detach(self, connection: Connection, parent: str, name: str) -> bool:
        part = f"{self._quoted}.{name}"
        async with self._brief(connection):
            await self._execute(connection, f"ALTER TABLE {self._quoted}.{parent} DETACH PARTITION {part}")
            if await self._database.value(connection, f"SELECT EXISTS (SELECT 1 FROM {part})"):  # noqa: S608
                raise _InUse  # a row with an old id was committed while this waited for the lock
            await self._execute(connection, f"DROP TABLE {part}")
        return True

    async def _names(self, connection: Connection, parent: str) -> Sequence[str]:
        found = await self._database.ask(
            connection,
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = :parent::text::regclass ORDER BY 1",
            parent=f"{self._quoted}.{parent}",
        )
        return [row[0] for row in found if _NAME.fullmatch(row[0])]

    async def _is_empty(self, connection: Connection, parent: str) -> bool:
        sql = f"SELECT NOT EXISTS (SELECT 1 FROM {self._quoted}.{parent})"  # noqa: S608
        return bool(await self._database.value(connection, sql))

    async def _execute(self, connection: Connection, sql: str) -> None:
        await self._database.driver.execute(connection, sql)

    async def _today(self, connection: Connection, hours: int = 0) -> datetime:
        now = await self._database.value(connection, "SELECT clock_timestamp()")
        now += self._database.ahead - timedelta(hours=hours)
        utc: datetime = now.astimezone(UTC)
        return utc.replace(hour=0, minute=0, second=0, microsecond=0)


class _TooMany(Exception):
    """A partition with more survivors than one transaction should rewrite is left alone."""


class _InUse(Exception):
    """A partition that was empty is not any more, or one that was missing is there."""


def _day(name: str) -> datetime:
    return datetime.strptime(name.rsplit("_", 1)[1], "%Y%m%d").replace(tzinfo=UTC)


def _remember(quoted_schema: str, part: str) -> str:
    """Whom sagas are about, when the events that say so go; `prune_events` does it for the default partition. It comes
    after the look at what is kept: what a delivery brought about is there to be seen once the delivery is not."""
    event, saga = f"{quoted_schema}.{EVENTS}", f"{quoted_schema}.postlude_saga"
    return f"""
WITH old AS MATERIALIZED (
    SELECT p.event_id, p.saga_id, p.causation_id, p.subjects FROM {part} p
     WHERE (p.subjects IS NOT NULL OR p.saga_id IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM postlude_kept k WHERE k.event_id = p.event_id) AND EXISTS (SELECT 1 FROM {saga})
), cause AS MATERIALIZED (
    SELECT t.subjects, o.saga_id FROM old o JOIN {event} t ON t.event_id = o.causation_id
     WHERE o.saga_id IS NOT NULL AND t.subjects IS NOT NULL AND NOT EXISTS (SELECT 1 FROM old WHERE old.event_id = t.event_id)
     ORDER BY t.event_id FOR SHARE OF t
)
INSERT INTO {quoted_schema}.postlude_saga_subject (subject, saga_id)
SELECT DISTINCT n.subject, l.saga_id
  FROM (SELECT subjects, saga_id FROM old WHERE subjects IS NOT NULL
        UNION ALL
        SELECT subjects, saga_id FROM cause
        UNION ALL
        SELECT o.subjects, c.saga_id FROM old o JOIN {event} c ON c.causation_id = o.event_id
         WHERE o.subjects IS NOT NULL AND c.saga_id IS NOT NULL) AS l
  JOIN {saga} s ON s.id = l.saga_id
 CROSS JOIN LATERAL unnest(l.subjects) AS n (subject)
 ORDER BY 1, 2
ON CONFLICT DO NOTHING"""  # noqa: S608 - names of ours


class _Day:
    """The statements that make one day's partition."""

    def __init__(self, quoted_schema: str, parent: str, day: datetime) -> None:
        self.parent = parent
        self.name = f"{parent}_{day:%Y%m%d}"
        self.default = f"{quoted_schema}.{parent}_default"
        low, high = first_of(day), first_of(day + timedelta(days=1))
        whole, part = f"{quoted_schema}.{parent}", f"{quoted_schema}.{self.name}"
        inside = f"event_id >= '{low}' AND event_id < '{high}'"
        self.create = (
            f"CREATE TABLE IF NOT EXISTS {part} (LIKE {whole} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES,"
            f" CONSTRAINT {self.name}_bound CHECK ({inside}))"
        )
        self.keep_out = f"ALTER TABLE {self.default} ADD CONSTRAINT not_{self.name} CHECK (NOT ({inside})) NOT VALID"
        self.came_early = f"SELECT EXISTS (SELECT 1 FROM {self.default} WHERE {inside})"  # noqa: S608
        moved = f"DELETE FROM {self.default} WHERE {inside} RETURNING *"  # noqa: S608
        self.move = f"WITH moved AS ({moved}) INSERT INTO {part} SELECT * FROM moved"  # noqa: S608
        self.validate = f"ALTER TABLE {self.default} VALIDATE CONSTRAINT not_{self.name}"
        self.attach = f"ALTER TABLE {whole} ATTACH PARTITION {part} FOR VALUES FROM ('{low}') TO ('{high}')"
        self.let_in = f"ALTER TABLE {self.default} DROP CONSTRAINT not_{self.name}"
