"""What an append adds to a caller's transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from statistics import median

from benchmarks.measuring import plain
from benchmarks.measuring.backlog import Backlog
from benchmarks.measuring.database import connected
from benchmarks.measuring.engine import engine, orders
from benchmarks.measuring.turns import Side, take_turns, tidy
from benchmarks.scenarios.setup import Pair, Setup
from postlude.core.codec import encode

TRANSACTIONS = 2000
SLICE = 100


async def append(setup: Setup) -> AsyncIterator[Pair]:
    """One event in a transaction, against one insert in a transaction: on the same connection, in slices that take
    turns. The plain side gets its bytes ready-made."""
    params = setup.params
    slices = max(1, min(TRANSACTIONS, params.events) // SLICE)
    events = orders(SLICE, params.bytes)
    payload = encode(events[0])
    backlog = Backlog(setup.connection)
    async with engine(setup.url, batch=params.batch) as app, connected(setup.url) as connection:
        await app.start()

        async def ours() -> float:
            tidy()
            start = time.perf_counter()
            for event in events:
                async with connection.transaction():
                    await app.outbox.append(connection, event)
            elapsed = time.perf_counter() - start
            await asyncio.sleep(0.02)  # the last hint of this slice must not fall into the other side's
            return elapsed

        async def theirs() -> float:
            tidy()
            start = time.perf_counter()
            for _ in events:
                async with connection.transaction():
                    await plain.insert(connection, payload)
            return time.perf_counter() - start

        for repeat in setup.repeats:
            await backlog.clear()
            await plain.clear(setup.connection)
            yield await in_slices(repeat, slices, SLICE, ours, theirs)


async def in_slices(repeat: int, slices: int, size: int, ours: Side, theirs: Side) -> Pair:
    """Transactions a second of both sides, each of which does so many of them at a time and says how long it took. The
    median slice counts: what else the machine does in between is nobody's."""
    await take_turns(repeat, ours, theirs)  # not counted: the statements are prepared here
    times = [await take_turns(number, ours, theirs) for number in range(slices)]
    our_slices, their_slices = zip(*times, strict=True)
    return size / median(our_slices), size / median(their_slices)
