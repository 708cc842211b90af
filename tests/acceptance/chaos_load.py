"""Appends in many transactions, part by part. Each key has one writer, so that its order is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any
from uuid import UUID

import asyncpg

from postlude import ConnectionClosed, DatabaseBusy, DatabaseUnavailable, Message, Postlude
from postlude.core.uuid7 import uuid7
from tests.acceptance.chaos_app import Called, Moved

Kind = type[Moved] | type[Called]
Appended = dict[UUID, tuple[str, int]]

SIZES = (1, 1, 1, 2, 5, 10, 20, 50, 100)
ROLLED_BACK = -1
"""The n of events whose transaction was rolled back: nobody may ever see it."""
LOST = (
    DatabaseUnavailable,
    DatabaseBusy,
    ConnectionClosed,
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InternalClientError,
)
"""What an application meets when its database is killed under it."""


class Writer:
    """Writes some keys that nobody else writes: the n-th event of a key only after the one before is committed."""

    def __init__(self, app: Postlude, kind: Kind, keys: Sequence[str], *, seed: int, linger: float) -> None:
        self._app = app
        self._kind = kind
        self._keys = keys
        self._random = Random(f"{seed} {keys[0]}")
        self._linger = linger
        self.appended: Appended = {}
        self.transactions = self.retried = self.rolled_back = 0

    async def run(self, each: int, released: Sequence[asyncio.Event]) -> None:
        """So many events for each key, in as many parts as there are events to wait for."""
        order = self._random.sample(self._keys, len(self._keys))
        wanted = [self._kind(key=key, n=n) for n in range(each) for key in order]
        share = -(-len(wanted) // len(released))
        for part, signal in enumerate(released):
            await signal.wait()
            for events in self._transactions(wanted[part * share : (part + 1) * share]):
                await self._commit(events)
                if self._random.random() < 0.05:
                    await self._roll_back()

    def _transactions(self, events: list[Any]) -> Iterator[list[Any]]:
        at = 0
        while at < len(events):
            size = self._random.choice(SIZES)
            yield events[at : at + size]
            at += size

    async def _commit(self, events: list[Any]) -> None:
        """Again and again with the same ids: where it is unknown whether a commit came through, one more is harmless."""
        ids = [uuid7(time.time_ns() // 1_000_000, self._random.getrandbits(74)) for _ in events]
        linger = self._random.choice((0, 0, 0, self._linger))
        while not await self._try(ids, events, linger):
            self.retried += 1
            await asyncio.sleep(0.1)
        self.transactions += 1
        self.appended.update({id_: (one.key, one.n) for id_, one in zip(ids, events, strict=True)})

    async def _try(self, ids: list[UUID], events: list[Any], linger: float) -> bool:
        try:
            async with self._app.transaction() as tx:
                if len(events) <= 2:
                    for id_, one in zip(ids, events, strict=True):
                        await self._app.outbox.append(tx, one, id=id_)
                else:
                    messages = [Message(one, id=id_) for id_, one in zip(ids, events, strict=True)]
                    await self._app.outbox.append_many(tx, messages)
                # Others take later seqs and commit before this one.
                await asyncio.sleep(linger)
        except LOST:
            return False
        return True

    async def _roll_back(self) -> None:
        try:
            async with self._app.transaction() as tx:
                await self._app.outbox.append(tx, self._kind(key=self._random.choice(self._keys), n=ROLLED_BACK))
                raise _ChangedMyMind
        except (_ChangedMyMind, *LOST):
            self.rolled_back += 1


class _ChangedMyMind(Exception):
    pass


class Load:
    """Several writers. A part is appended after it was released, so that every harm meets fresh work."""

    def __init__(self, app: Postlude, *, seed: int, parts: int, linger: float = 0.0) -> None:
        self._app = app
        self._seed = seed
        self._linger = linger
        self._released = [asyncio.Event() for _ in range(parts)]
        self._tasks: list[asyncio.Task[None]] = []
        self._size = 0
        self.writers: dict[Kind, list[Writer]] = {Moved: [], Called: []}

    @property
    def part_size(self) -> int:
        return self._size // len(self._released)

    def add(self, kind: Kind, *, keys: int, each: int, writers: int, prefix: str = "") -> None:
        self._size += keys * each
        names = [f"{prefix}{kind.__name__}-{i}" for i in range(keys)]
        for i in range(writers):
            writer = Writer(self._app, kind, names[i::writers], seed=self._seed, linger=self._linger)
            self.writers[kind].append(writer)
            self._tasks.append(asyncio.create_task(writer.run(each, self._released)))

    def release(self, part: int) -> None:
        self._released[part].set()

    async def finish(self) -> None:
        for part in range(len(self._released)):
            self.release(part)
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def appended(self, kind: Kind) -> Appended:
        return {id_: what for writer in self.writers[kind] for id_, what in writer.appended.items()}

    def __str__(self) -> str:
        all_ = [writer for writers in self.writers.values() for writer in writers]
        counts = {
            name: sum(getattr(writer, name) for writer in all_) for name in ("transactions", "retried", "rolled_back")
        }
        return ", ".join(f"{count} {name}" for name, count in counts.items())
