"""What the tests of consumers share: a service with books, messages as they stand on the wire, a broker with faults."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude import BrokerUnavailable, Context, DatabaseUnavailable, Postlude
from postlude.brokers.memory import MemoryBroker
from postlude.core.envelope import BrokerMessage
from postlude.insight.consumers import ConsumerView
from postlude.ports.broker import Received, Start, Subscription
from tests.databases import configured_servers
from tests.engine import Noted, make_app, query

TOPIC = "noted"
ONE_OF_EACH = [
    pytest.param("sqlite", marks=pytest.mark.sqlite, id="sqlite"),
    pytest.param(configured_servers()[0].name, marks=pytest.mark.postgres, id="postgres"),
]
"""Both kinds of database. What depends on the version of PostgreSQL is in the contract of stores."""


class Unreliable(MemoryBroker):
    """A memory broker that can also lose acknowledgements, and break the contract of adapters."""

    def __init__(self, *, reads: bool = True) -> None:
        super().__init__()
        self.reads = reads
        """The numbers of notes."""
        self.loses_acks = False
        self.numbers = True
        """Its messages, so that each has a position."""
        self.raises: Exception | None = None
        """By `receive`, once."""
        self.raises_on_leaving: Exception | None = None
        self.lost_acks = self.joined = 0
        self.taken: dict[str, list[int]] = {}
        """The numbers of the notes that went to each group, as often as they went."""

    def subscribe(
        self, topics: Sequence[str], group: str, *, start: Start = "earliest", prefetch: int = 500
    ) -> AbstractAsyncContextManager[Any]:
        return self._watched(super().subscribe(topics, group, start=start, prefetch=prefetch), group)

    @asynccontextmanager
    async def _watched(self, joining: AbstractAsyncContextManager[Any], group: str) -> AsyncIterator[Any]:
        self.joined += 1
        async with joining as member:
            yield _Member(self, member, group)
            if self.raises_on_leaving is not None:
                raise self.raises_on_leaving


class _Member:
    def __init__(self, broker: Unreliable, member: Subscription, group: str) -> None:
        self._broker = broker
        self._member = member
        self._group = group

    async def receive(self, limit: int, timeout: float) -> list[Received]:
        if (error := self._broker.raises) is not None:
            self._broker.raises = None
            raise error
        found = await self._member.receive(limit, timeout)
        if self._broker.reads:
            numbers = [msgspec.json.decode(one.payload, type=Noted).n for one in found]
            self._broker.taken.setdefault(self._group, []).extend(numbers)
        return found

    def position(self, received: Received) -> str | None:
        return self._member.position(received) if self._broker.numbers else None

    async def ack(self, received: Sequence[Received]) -> None:
        if self._broker.loses_acks:
            self._broker.lost_acks += 1
            raise BrokerUnavailable("the acknowledgement was lost")
        await self._member.ack(received)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)


def noted(n: int, key: str = "k", *, id: UUID | str | None = None, topic: str = TOPIC, **headers: str) -> BrokerMessage:
    """A note on the wire, as another service's outbox would write it."""
    event_id = id or uuid4()
    told = {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": str(event_id),
        "ce_type": "test.noted",
        "ce_source": "notes",
        "ce_dataversion": "1",
        "ce_partitionkey": key,
    }
    payload = msgspec.json.encode({"key": key, "n": n})
    return BrokerMessage(UUID(int=0), topic, key, payload, told | headers)


def raw(payload: bytes, *, topic: str = TOPIC, key: str | None = None, **headers: str) -> BrokerMessage:
    """Something else."""
    return BrokerMessage(UUID(int=0), topic, key, payload, headers)


def service(url: str, broker: MemoryBroker, *consumers: str, **settings: Any) -> Postlude:
    """A service whose consumers (`billing`, unless named) keep books: a row for every note, by the handler's own
    transaction. Nothing keeps a second row away, so that it would show."""
    app = make_app(url, **settings)
    app._opened_brokers["default"] = broker
    for consumer in consumers or ("billing",):
        _add_books(app, consumer)
    return app


def _add_books(app: Postlude, consumer: str) -> None:
    @app.on(Noted, name=f"{consumer}_books", topic=TOPIC, consumer=consumer)
    async def book(note: Noted, ctx: Context) -> None:
        await write(ctx.tx, consumer, note)


async def open_books(url: str) -> None:
    place = "seq integer PRIMARY KEY" if url.startswith("sqlite") else "seq bigserial PRIMARY KEY"
    await run(url, f"CREATE TABLE booked ({place}, consumer text, key text, n int)")


async def run(url: str, sql: str) -> None:
    """A statement that gives no rows."""
    await query(url, sql)


async def write(tx: Any, consumer: str, note: Noted) -> None:
    done = tx.execute(f"INSERT INTO booked (consumer, key, n) VALUES ('{consumer}', '{note.key}', {note.n})")
    if inspect.isawaitable(done):
        await done


async def booked(url: str, consumer: str = "billing", key: str | None = None) -> list[int]:
    """The numbers in the books, in the order in which they were written."""
    of_key = "" if key is None else f" AND key = '{key}'"
    rows = await query(url, f"SELECT n FROM booked WHERE consumer = '{consumer}'{of_key} ORDER BY seq")
    return [row[0] for row in rows]


async def seen(url: str) -> int:
    """How many messages the inbox remembers."""
    ((count,),) = await query(url, "SELECT count(*) FROM postlude_inbox")
    return int(count)


async def counted(app: Postlude, consumer: str = "billing") -> ConsumerView:
    (found,) = [one for one in await app.insight.consumers() if one.name == consumer]
    return found


class Outage:
    """Takes the database away from whoever begins a transaction of the store's own. Before the first worker is made."""

    def __init__(self, app: Postlude) -> None:
        self.is_on = False
        self.refused = 0
        self._begin = app.store.transaction
        setattr(app.store, "transaction", self._transaction)  # noqa: B010 - a fault of the outside world

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        if self.is_on:
            self.refused += 1
            raise DatabaseUnavailable("the test took it away")
        async with self._begin() as handle:
            yield handle
