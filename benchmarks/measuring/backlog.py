"""A backlog that is put back for every repeat."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measuring.database import Connection
from postlude import Postlude

CHUNK = 2000
_DELIVERY = "event_id, destination, lane, key, priority, status, max_attempts"


class Backlog:
    """Events that the real append wrote once; they are kept aside and copied back, ids and all, in the same order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def keep(self, app: Postlude, name: str, events: Sequence[object]) -> None:
        """Append them and remember them under that name."""
        await self.clear()
        for start in range(0, len(events), CHUNK):
            async with app.transaction() as tx:
                await app.outbox.append_many(tx, events[start : start + CHUNK])
        for table in ("event", "delivery"):
            await self._connection.execute(f"DROP TABLE IF EXISTS {name}_{table}")
            await self._connection.execute(f"CREATE TABLE {name}_{table} AS SELECT * FROM postlude_{table}")

    async def restore(self, *names: str) -> None:
        """These and nothing else, in this order."""
        await self.clear()
        for name in names:
            await self._connection.execute(f"INSERT INTO postlude_event SELECT * FROM {name}_event ORDER BY event_id")
            await self._connection.execute(
                f"INSERT INTO postlude_delivery ({_DELIVERY}) SELECT {_DELIVERY} FROM {name}_delivery ORDER BY seq"
            )
        await self._connection.execute("ANALYZE postlude_event, postlude_delivery")

    async def fail_heads(self, name: str) -> None:
        """The first delivery of each of its keys has failed and is not due for an hour."""
        await self._connection.execute(
            "UPDATE postlude_delivery SET status = 'failed', blocks = true, attempts = 1,"
            " available_at = clock_timestamp() + interval '1 hour' WHERE event_id IN"
            f" (SELECT DISTINCT ON (key) event_id FROM {name}_delivery ORDER BY key, seq)"
        )
        await self._connection.execute("ANALYZE postlude_delivery")

    async def clear(self) -> None:
        """Fresh files. The checkpoint is made now so that none falls into a measurement, and before anything is
        written, so that no side pays for images of the pages it fills."""
        await self._connection.execute("TRUNCATE postlude_event, postlude_delivery, postlude_receipt RESTART IDENTITY")
        await self._connection.execute("CHECKPOINT")

    async def open_and_settled(self) -> tuple[int, int]:
        found = await self._connection.fetchrow(
            "SELECT (SELECT count(*) FROM postlude_delivery), (SELECT count(*) FROM postlude_receipt)"
        )
        return (0, 0) if found is None else (found[0], found[1])
