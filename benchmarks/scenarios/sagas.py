"""Sagas of three steps that do nothing, so many at once, against the same by others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec

from benchmarks.measuring import handwritten
from benchmarks.measuring.database import connected
from benchmarks.measuring.engine import database_of, settled
from benchmarks.measuring.turns import take_turns, tidy
from benchmarks.scenarios.setup import Pair, Setup, expect
from postlude import Context, Ok, Postlude, Saga, Settings

AT_ONCE = 16
STEPS = 3
POOL = AT_ONCE + 8
"""A connection for each step under way, and some for whoever starts sagas and reads ahead."""
_TABLES = "postlude_event, postlude_delivery, postlude_receipt, postlude_saga, postlude_saga_step"
_LEFT = """
SELECT (SELECT count(*) FROM postlude_saga WHERE status = 'completed'), (SELECT count(*) FROM postlude_saga),
       (SELECT count(*) FROM postlude_delivery), (SELECT count(*) FROM postlude_receipt)"""


class Order(msgspec.Struct, frozen=True):
    order_id: str
    note: str


async def against_dbos(setup: Setup) -> AsyncIterator[Pair]:
    from benchmarks.peers import dbos

    params, before = setup.params, 0

    async def theirs() -> float:
        nonlocal before
        await setup.connection.execute("CHECKPOINT")
        tidy()
        elapsed = await dbos.run(setup.url, params.events, params.bytes, AT_ONCE)
        before += params.events
        found = await dbos.done(setup.connection)
        expect(found == (before, STEPS * before), f"DBOS left {found}")
        return params.events / elapsed

    for repeat in setup.repeats:
        yield await take_turns(repeat, lambda: _ours(setup), theirs)


async def against_handwritten(setup: Setup) -> AsyncIterator[Pair]:
    params = setup.params
    setup.costs.unit = "saga"

    async def theirs() -> float:
        await handwritten.clear(setup.connection)
        state = msgspec.json.encode(Order("o-0", _note(setup)))
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(connected(setup.url)) for _ in range(AT_ONCE)]
            tidy()

            async def one(client: int, number: int) -> None:
                await handwritten.run(connections[client], f"o-{number}", state)

            with setup.costs.client(params.events):
                elapsed = await _all_of(params.events, one)
        found = await handwritten.done(setup.connection)
        expect(found == (params.events, STEPS * params.events), f"the loop left {found}")
        return params.events / elapsed

    for repeat in setup.repeats:
        yield await take_turns(repeat, lambda: _ours(setup), theirs)
    # Once more for its costs: counting statements takes a tenth of the time.
    async with setup.costs.metered(params.events):
        await _ours(setup, metered=True)


async def _ours(setup: Setup, *, metered: bool = False) -> float:
    """Sagas a second, with one worker in this process: started, and their last receipt written."""
    sagas, note = setup.params.events, _note(setup)
    await setup.connection.execute(f"TRUNCATE {_TABLES} RESTART IDENTITY")
    await setup.connection.execute("CHECKPOINT")
    app, saga, ended = _app(setup.url)
    async with app:
        await app.start()
        if metered:
            setup.costs.count_statements(database_of(app))

        async def one(_client: int, number: int) -> None:
            order = Order(f"o-{number}", note)
            mine = ended[order.order_id] = asyncio.get_running_loop().create_future()
            async with app.transaction() as tx:
                await app.sagas.start(tx, saga, order)
            await mine

        async with app.worker() as worker:
            relay = worker.relays[f"saga:{saga.name}"]
            tidy()
            start = time.perf_counter()
            await _all_of(sagas, one)
            await settled(relay, STEPS * sagas)
            elapsed = time.perf_counter() - start
            if metered:
                await setup.costs.note_connections()
    found = tuple(await setup.connection.fetchrow(_LEFT) or ())
    expect(found == (sagas, sagas, 0, STEPS * sagas), f"the engine left {found}")
    return sagas / elapsed


def _app(url: str) -> tuple[Postlude, Saga[Order], dict[str, asyncio.Future[None]]]:
    """Whoever started a saga is told of its end by its last step."""
    ended: dict[str, asyncio.Future[None]] = {}

    async def reserve(order: Order, _ctx: Context) -> Ok[str]:
        return Ok(order.order_id)

    async def charge(order: Order, _ctx: Context) -> Ok[str]:
        return Ok(order.order_id)

    async def ship(order: Order, _ctx: Context) -> Ok[str]:
        ended.pop(order.order_id).set_result(None)
        return Ok(order.order_id)

    settings = Settings.load(handler={"concurrency": AT_ONCE}, pool={"max": POOL})
    app = Postlude(url, settings=settings)
    saga = Saga("order", state=Order).step(reserve, undo=None).step(charge, undo=None).step(ship, undo=None)
    app.sagas.register(saga)
    return app, saga, ended


async def _all_of(sagas: int, one: Callable[[int, int], Awaitable[None]]) -> float:
    """The seconds that so many take, AT_ONCE at a time: whoever has seen his end begins the next."""
    left = iter(range(sagas))

    async def client(place: int) -> None:
        for number in left:
            await one(place, number)

    start = time.perf_counter()
    await asyncio.gather(*(client(place) for place in range(AT_ONCE)))
    return time.perf_counter() - start


def _note(setup: Setup) -> str:
    return "x" * setup.params.bytes
