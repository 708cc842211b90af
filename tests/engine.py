"""What the tests of the running engine share: a small app, transactions to hold open, eyes on what the store is asked."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec

from postlude import Event, Postlude, Settings, event
from postlude.core.delivery import Delivery
from postlude.core.lanes import lane_of
from postlude.ports.reading import Reading
from postlude.runtime.worker import Worker
from postlude.testing.clock import ManualClock

ONCE = {"max_attempts": 1, "base_delay_seconds": 0, "jitter_factor": 0}
"""A retry that is none."""
LANES = 64
PATIENCE = 60.0
"""Seconds until something that should happen is taken for something that never does."""

Condition: TypeAlias = Callable[[], bool | Awaitable[bool]]


@event(type="test.noted", topic="noted", key="key")
class Noted(Event):
    """The n-th thing that is known of a key."""

    key: str
    n: int


def make_app(url: str, **settings: Any) -> Postlude:
    """An app whose database clock the test moves, and whose retries wait for nothing unless the settings say so. No
    handler runs into the limit on SQLite because its machine stands still."""
    settings.setdefault("retry", {"base_delay_seconds": 0, "jitter_factor": 0})
    settings["handler"] = {"sqlite_limit": 20, **settings.get("handler", {})}
    options = Settings.load(environ={}, **settings)
    app = Postlude(url, broker="memory://", brokers={"other": "memory://"}, settings=options)
    app.clock = ManualClock()
    return app


def routed_app(url: str, **settings: Any) -> Postlude:
    """The same with everything going to the memory broker."""
    app = make_app(url, **settings)
    app.route(Noted)
    return app


async def note(app: Postlude, key: str, *numbers: int) -> None:
    """Append in one transaction."""
    async with app.transaction() as tx:
        await app.outbox.append_many(tx, [Noted(key=key, n=n) for n in numbers])


def notes(messages: Iterable[Any]) -> list[Noted]:
    """What messages of a broker say."""
    return [msgspec.json.decode(message.payload, type=Noted) for message in messages]


def published(app: Postlude, key: str | None = None, broker: str = "default") -> list[int]:
    """The numbers a broker was given, in order, of one key or of all."""
    return [noted.n for noted in notes(app.broker(broker).messages()) if key in (None, noted.key)]


def key_in(lane: int, *, without: Collection[str] = (), lanes: int = LANES) -> str:
    """A key whose entries fall in that lane."""
    keys = (f"key-{n}" for n in range(100_000))
    return next(key for key in keys if lane_of(key, UUID(int=0), lanes) == lane and key not in without)


async def until(condition: Condition, patience: float = PATIENCE) -> None:
    """Wait for what another task, thread or process brings about."""
    deadline = time.monotonic() + patience
    while True:
        met = condition()
        if await met if inspect.isawaitable(met) else met:
            return
        assert time.monotonic() < deadline, f"still not met after {patience:g} s: {inspect.getsource(condition)}"
        await asyncio.sleep(0.005)


async def arrived(app: Postlude, *numbers: int, broker: str = "default") -> None:
    """Wait until a broker was given these numbers."""
    await until(lambda: set(numbers) <= set(published(app, broker=broker)))


class Held:
    """A transaction that the test keeps open for as long as it wants, on a connection of its own."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.is_open = True

    async def commit(self) -> None:
        await self._end("COMMIT")

    async def rollback(self) -> None:
        await self._end("ROLLBACK")

    async def _end(self, statement: str) -> None:
        if self.is_open:
            self.is_open = False
            done = self.connection.execute(statement)
            if inspect.isawaitable(done):
                await done


@asynccontextmanager
async def held(url: str, begin: str = "BEGIN") -> AsyncIterator[Held]:
    """Open a transaction as some other program would; what is still open at the end is rolled back."""
    connection = await connect(url)
    try:
        begun = connection.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else begin)
        if inspect.isawaitable(begun):
            await begun
        transaction = Held(connection)
        yield transaction
        await transaction.rollback()
    finally:
        closed = connection.close()
        if inspect.isawaitable(closed):
            await closed


async def connect(url: str) -> Any:
    """A driver's own connection, in autocommit."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return sqlite3.connect(path, isolation_level=None, timeout=30)
    return await asyncpg.connect(url.replace("+psycopg://", "://"))


async def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Ask the database itself, as an operator with a shell would."""
    connection = await connect(url)
    try:
        if isinstance(connection, sqlite3.Connection):
            return connection.execute(sql).fetchall()
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        closed = connection.close()
        if inspect.isawaitable(closed):
            await closed


class Eyes:
    """Sees what the engine asks of a store's reading side; a test may step in between."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.rows = 0
        """Pending rows that came back, of all reads."""
        self.largest = 0
        """Of one read."""
        self.floors: dict[tuple[str, int], int] = {}
        """The floor of the last read of each destination and lane."""
        self.calls: dict[str, int] = {}
        self.before: dict[str, Callable[..., Awaitable[None]]] = {}
        """By method: what to await before the store is asked."""

    async def read_pending(self, destination: str, tracks: Any, limit: int) -> list[Delivery]:
        for track in tracks:
            if track.priority == 1:
                self.floors[destination, track.lane] = track.floor
        rows: list[Delivery] = await self._ask("read_pending", destination, tracks, limit)
        self.rows += len(rows)
        self.largest = max(self.largest, len(rows))
        return rows

    async def _ask(self, name: str, *arguments: Any) -> Any:
        self.calls[name] = self.calls.get(name, 0) + 1
        if (step := self.before.get(name)) is not None:
            await step(*arguments)
        return await getattr(self._reading, name)(*arguments)

    def __getattr__(self, name: str) -> Any:
        async def ask(*arguments: Any) -> Any:
            return await self._ask(name, *arguments)

        return ask


def watch(app: Postlude) -> Eyes:
    """Put eyes on the app's store. Before its first worker is made."""
    eyes = Eyes(app.store.reading)
    app.store.reading = eyes
    return eyes


@asynccontextmanager
async def workers(app: Postlude, count: int = 1) -> AsyncIterator[list[Worker]]:
    """Workers that were started but do nothing by themselves: the test ticks and drains them."""
    await app.start()
    made = [app.engine.new_worker(duties=False) for _ in range(count)]
    try:
        for worker in made:
            await worker.start()
        yield made
    finally:
        for worker in made:
            await worker.stop(timeout=1)


async def die(worker: Worker) -> None:
    """As kill -9 would: the lease is not renewed any more, and nothing is said to anybody."""
    await asyncio.to_thread(worker._renewal.stop, 5)


async def settle_shares(*live: Worker, ticks: int = 5) -> None:
    """Let every worker look at the others until nothing moves any more."""
    for _ in range(ticks):
        for worker in live:
            await worker.tick()


async def is_settled(url: str) -> bool:
    """Nothing is open but dead letters."""
    return not await query(url, "SELECT 1 FROM postlude_delivery WHERE status <> 'dead'")
