"""The app of the chaos tests. Whatever it delivers leaves a trace, so that a loss, a double and a swap all show."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from postlude import Context, Event, Postlude, Retry, Settings, event

CALL_TIMEOUT = 1.0
"""Short, because a call of unknown outcome is made again only some seconds after its timeout."""

EFFECTS = {
    "postgres": "CREATE TABLE effect (position bigserial, event_id uuid, key text, n int, worker int)",
    "sqlite": "CREATE TABLE effect (position integer PRIMARY KEY, event_id text, key text, n int, worker int)",
}
"""No unique constraint but the position: a second effect of an event must be able to happen, so that it would show."""


@event(key="key")
class Moved(Event):
    """The n-th thing that happened to a key."""

    key: str
    n: int


@event(key="key")
class Called(Event):
    """The same, for a handler that calls out."""

    key: str
    n: int


@event(key="key")
class Lingered(Event):
    """For a handler that takes its time."""

    key: str
    seconds: float


class Trace(msgspec.Struct, frozen=True, array_like=True):
    """A delivery as its receiver saw it; the clock is the machine's, so that traces of processes can be compared."""

    at: int
    event_id: UUID
    key: str
    n: int


class Traces:
    """A file of this process, one line a delivery: written before the delivery is confirmed, or not at all."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}-{os.getpid()}.trace"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, event_id: UUID, key: str, n: int) -> None:
        os.write(self._file, msgspec.json.encode(Trace(time.monotonic_ns(), event_id, key, n)) + b"\n")


def make_app(url: str | None, traces: Path, **settings: Any) -> Postlude:
    """`Moved` has its effect in the database and goes to a broker; `Called` goes to a handler without a transaction."""
    app = Postlude(url, broker="memory://", settings=Settings.load(**settings))
    app.route(Moved)
    published = Traces(traces, "published")
    called = Traces(traces, "called")

    def receive(message: Any) -> None:
        body = msgspec.json.decode(message.payload, type=Moved)
        published.add(message.id, body.key, body.n)

    app.broker().keep = False
    app.broker().fate = receive
    worker = os.getpid()
    patient = Retry(max_attempts=50, base_delay=0.1, max_delay=1.0)

    @app.on(Moved, name="effect", retry=patient, timeout=5)
    async def effect(moved: Moved, ctx: Context) -> None:
        values = (ctx.event_id, moved.key, moved.n, worker)
        if app.store.dialect == "sqlite":
            sql = "INSERT INTO effect (event_id, key, n, worker) VALUES (?, ?, ?, ?)"
            ctx.tx.execute(sql, (str(ctx.event_id), *values[1:]))
        else:
            await ctx.tx.execute("INSERT INTO effect (event_id, key, n, worker) VALUES ($1, $2, $3, $4)", *values)

    @app.on(Called, name="call", transactional=False, retry=patient, timeout=CALL_TIMEOUT)
    async def call(called_out: Called, ctx: Context) -> None:
        called.add(ctx.event_id, called_out.key, called_out.n)

    @app.on(Lingered, name="linger", transactional=False, retry=patient, timeout=120)
    async def linger(lingered: Lingered, ctx: Context) -> None:
        called.add(ctx.event_id, lingered.key, 0)
        await asyncio.sleep(lingered.seconds)

    return app
