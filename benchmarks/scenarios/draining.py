"""How fast one worker drains a backlog, and whether keys that wait are in the way of the others."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from benchmarks.measuring import plain
from benchmarks.measuring.backlog import Backlog
from benchmarks.measuring.database import connected
from benchmarks.measuring.engine import database_of, drain, engine, orders
from benchmarks.measuring.turns import take_turns, tidy
from benchmarks.scenarios.setup import Pair, Setup, expect
from postlude.core.codec import encode
from postlude.core.lanes import LANES, lane_of
from postlude.core.uuid7 import uuid7


async def relay(setup: Setup) -> AsyncIterator[Pair]:
    """A backlog through lanes to a broker that costs nothing, against reading and deleting a plain table."""
    params = setup.params
    events = orders(params.events, params.bytes)
    backlog = Backlog(setup.connection)
    async with engine(setup.url, batch=params.batch) as app:
        await backlog.keep(app, "others", events)

    async def ours() -> float:
        await backlog.restore("others")
        async with setup.costs.metered(params.events):
            rate = await _drain(setup, metered=True)
        expect(await backlog.open_and_settled() == (0, params.events), "the engine did not settle everything")
        return rate

    async def theirs() -> float:
        await plain.fill(setup.connection, params.events, encode(events[0]))
        async with connected(setup.url) as connection:
            tidy()
            start = time.perf_counter()
            found = await plain.drain(connection, params.batch)
            elapsed = time.perf_counter() - start
        expect(found == (params.events, params.events * params.bytes), f"the plain table gave {found}")
        return params.events / elapsed

    for repeat in setup.repeats:
        yield await take_turns(repeat, ours, theirs)


async def blocked(setup: Setup) -> AsyncIterator[Pair]:
    """Other keys behind a failed head in every lane and all that waits for it, against the same without these."""
    params = setup.params
    held = params.events + LANES
    backlog = Backlog(setup.connection)
    async with engine(setup.url, batch=params.batch) as app:
        await backlog.keep(app, "others", orders(params.events, params.bytes))
        await backlog.keep(app, "held", orders(held, params.bytes, _one_key_a_lane()))

    async def behind() -> float:
        await backlog.restore("held", "others")
        await backlog.fail_heads("held")
        rate = await _drain(setup)
        expect(await backlog.open_and_settled() == (held, params.events), "the wrong entries were settled")
        return rate

    async def free() -> float:
        await backlog.restore("others")
        return await _drain(setup)

    for repeat in setup.repeats:
        yield await take_turns(repeat, behind, free)


async def _drain(setup: Setup, *, metered: bool = False) -> float:
    """Events a second of a fresh worker, from before it registers to its last receipt."""
    events = setup.params.events
    async with engine(setup.url, batch=setup.params.batch) as app:
        await app.start()
        if metered:
            setup.costs.count_statements(database_of(app))
        tidy()
        start = time.perf_counter()
        async with app.worker() as worker:
            await drain(worker, events)
            elapsed = time.perf_counter() - start
            if metered:
                await setup.costs.note_connections()
        expect(app.broker().published == events, f"{app.broker().published} messages were published")
    return events / elapsed


def _one_key_a_lane() -> list[str]:
    keys: dict[int, str] = {}
    number = 0
    while len(keys) < LANES:
        key = f"h-{number:04d}"
        keys.setdefault(lane_of(key, uuid7(0, 0), LANES), key)
        number += 1
    return list(keys.values())
