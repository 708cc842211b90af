"""What an append costs through a caller's handle, whichever it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.handles.handle import Handle
from benchmarks.measuring.engine import OrderPlaced, engine, orders
from benchmarks.measuring.shop import Left, PostgresShop, Shop, SqliteShop
from benchmarks.measuring.turns import tidy
from benchmarks.scenarios.appending import in_slices
from benchmarks.scenarios.setup import Pair, Scenario, Setup, expect
from postlude import Postlude

SLICE = 10
"""Short, so that both sides have the same of whatever else happens; the statements are prepared within one."""
METERED_SLICES = 50
Slice = Callable[[Sequence[OrderPlaced]], Awaitable[float]]


def joining(handle: Handle, *, metered: bool = False) -> Scenario:
    """The scenario of that handle: a business row and an append, against a business row and a plain insert."""

    async def on_sqlite(setup: Setup) -> AsyncIterator[Pair]:
        with TemporaryDirectory() as folder:
            path = f"{folder}/shop.db"
            async for pair in _measured(handle, setup, f"sqlite:///{path}", SqliteShop(path)):
                yield pair

    async def on_postgres(setup: Setup) -> AsyncIterator[Pair]:
        async for pair in _measured(handle, setup, setup.url, PostgresShop(setup.connection)):
            yield pair
        if metered:
            await _meter(handle, setup)

    return on_sqlite if handle.database == "sqlite" else on_postgres


async def _measured(handle: Handle, setup: Setup, url: str, shop: Shop) -> AsyncIterator[Pair]:
    slices = setup.params.events // SLICE
    events = orders(SLICE, setup.params.bytes)
    each = (slices + 1) * SLICE
    size = each * setup.params.bytes
    async with engine(url, batch=setup.params.batch) as app, _opened(handle, url, app) as (ours, raw):
        for repeat in setup.repeats:
            await shop.clear()
            tidy()
            yield await in_slices(repeat, slices, SLICE, partial(ours, events), partial(raw, events))
            left = await shop.left()
            expect(left == Left(2 * each, each, each, size, each, size), f"{handle.name} left {left}")


async def _meter(handle: Handle, setup: Setup) -> None:
    """Our side once more, for its costs: on new connections, for they are counted too."""
    events = orders(SLICE, setup.params.bytes)
    async with (
        setup.costs.metered(SLICE * METERED_SLICES),
        engine(setup.url, batch=setup.params.batch) as app,
        _opened(handle, setup.url, app) as (ours, _),
    ):
        for _ in range(METERED_SLICES):
            await ours(events)
        await setup.costs.note_connections()


@asynccontextmanager
async def _opened(handle: Handle, url: str, app: Postlude) -> AsyncIterator[tuple[Slice, Slice]]:
    """Both sides of an open handle. What blocks has a thread of its own, as in a web server, and no loop there."""
    await app.start()
    if handle.waits is not None:
        async with handle.waits(url, app) as transactions:
            yield partial(_await_all, transactions.ours), partial(_await_all, transactions.raw)
        return
    if handle.blocks is None:
        raise TypeError(f"{handle.name} can be opened neither in a loop nor in a thread")
    opening = handle.blocks(url, app)
    with ThreadPoolExecutor(1) as thread:
        call = partial(asyncio.get_running_loop().run_in_executor, thread)
        transactions = await call(opening.__enter__)
        try:
            yield partial(call, _call_all, transactions.ours), partial(call, _call_all, transactions.raw)
        finally:
            await call(opening.__exit__, None, None, None)


async def _await_all(transaction: Callable[[OrderPlaced], Awaitable[Any]], events: Sequence[OrderPlaced]) -> float:
    start = time.perf_counter()
    for event in events:
        await transaction(event)
    return time.perf_counter() - start


def _call_all(transaction: Callable[[OrderPlaced], Any], events: Sequence[OrderPlaced]) -> float:
    start = time.perf_counter()
    for event in events:
        transaction(event)
    return time.perf_counter() - start
