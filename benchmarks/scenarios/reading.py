"""Whether the hot read minds how much is open."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from statistics import median

from benchmarks.measuring.database import Connection
from benchmarks.measuring.engine import DESTINATION, database_of, engine
from benchmarks.measuring.turns import say, take_turns
from benchmarks.scenarios.setup import Pair, Setup
from postlude.core.delivery import NORMAL
from postlude.core.lanes import LANES
from postlude.storage.postgres.connection import Database

READS = 200


def sizes(events: int) -> tuple[int, int]:
    """Very many and few open deliveries, for a backlog of so many events: 5 million and 10 thousand for 100,000."""
    return events * 50, events // 10


async def read(setup: Setup) -> AsyncIterator[Pair]:
    """The statement of the hot read, every lane from its beginning, in two schemas of one database."""
    batch = setup.params.batch
    async with (
        engine(setup.url, batch=batch, schema="bench_many") as in_many,
        engine(setup.url, batch=batch, schema="bench_few") as in_few,
    ):
        for app, rows in zip((in_many, in_few), sizes(setup.params.events), strict=True):
            await app.db.upgrade()
            await _fill(setup.connection, app.settings.schema, rows)

        async def among_many() -> float:
            return await _read(database_of(in_many), batch)

        async def among_few() -> float:
            return await _read(database_of(in_few), batch)

        for repeat in setup.repeats:
            await take_turns(repeat, among_many, among_few)  # not counted: the statement is prepared here
            times = [await take_turns(number, among_many, among_few) for number in range(READS)]
            many, few = zip(*times, strict=True)
            yield median(many) * 1000, median(few) * 1000


async def _fill(connection: Connection, schema: str, rows: int) -> None:
    say(f"filling {schema} with {rows:,} open deliveries")
    await connection.execute(
        f"INSERT INTO {schema}.postlude_delivery (event_id, destination, lane, key)"
        f" SELECT lpad(to_hex(n), 32, '0')::uuid, '{DESTINATION}', n % 5000 % {LANES}, 'o-' || n % 5000"
        f" FROM generate_series(1, {rows}) AS n ORDER BY n"
    )
    # With VACUUM, so that autovacuum does not choose the time of the measurement for it.
    await connection.execute(f"VACUUM ANALYZE {schema}.postlude_delivery")
    await connection.execute("CHECKPOINT")


async def _read(database: Database, batch: int) -> float:
    start = time.perf_counter()
    await database.fetch(
        "read_pending",
        destination=DESTINATION,
        lanes=list(range(LANES)),
        priorities=[NORMAL] * LANES,
        floors=[0] * LANES,
        limit=-(-batch // LANES),
    )
    return time.perf_counter() - start
