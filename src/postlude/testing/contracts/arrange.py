"""What the contract tests of stores and handles set up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from postlude.core.delivery import NORMAL, PRIORITIES, Delivery, Fence, Verdict
from postlude.core.floors import Track
from postlude.core.lifecycle import Status, blocks
from postlude.core.statement import Call, Row, Script, Statement
from postlude.ports.append import Prepared, Route
from postlude.ports.enlist import Adapter
from postlude.ports.store import Store

LANES = 8
LEASE = 15.0
TO = "broker"


class Undo(Exception):
    """Raised by a test to have its block rolled back."""


@contextmanager
def undone() -> Iterator[None]:
    """The block raises Undo, and it comes through."""
    with pytest.raises(Undo):
        yield


def event(
    key: str | None = None,
    *,
    id: UUID | None = None,
    to: Iterable[str] = (TO,),
    lane: int = 0,
    payload: bytes = b"{}",
    **given: Any,
) -> Prepared:
    """An event as an outbox would prepare it. The id is not of version 7, so that it lies in no partition."""
    told: dict[str, Any] = {
        "event_id": id or uuid4(),
        "type": "order.placed",
        "version": 1,
        "source": "shop",
        "entity": None,
        "key": key,
        "topic": "orders",
        "content_type": "application/json",
        "payload": payload,
        "digest": sha256(payload).digest(),
        "headers": "{}",
        "correlation_id": "c-1",
        "causation_id": None,
        "saga_id": None,
        "subjects": (),
        "priority": NORMAL,
        "max_attempts": None,
        "available_at": None,
        "routes": tuple(Route(destination, lane, key) for destination in to),
    }
    return Prepared(**(told | given))


class Arranged(NamedTuple):
    """A store and the handle's adapter that its transactions need."""

    store: Store
    adapter: Adapter
    prefix: str = ""

    async def append(self, *events: Prepared) -> list[UUID]:
        """In a transaction of their own."""
        async with self.store.transaction() as tx:
            return await self.adapter.play(tx, self.store.scripts.append(events))

    async def run(self, sql: str, **values: Any) -> list[Row]:
        """Raw SQL, committed; `{}` is where the schema goes. It stands for what operators and other programs do."""
        async with self.store.transaction() as tx:
            return await self.adapter.play(tx, _raw(sql.replace("{}", self.prefix), values))

    async def seqs(self, destination: str = TO) -> list[int]:
        """Every open delivery of a destination, oldest first."""
        sql = "SELECT seq FROM {}postlude_delivery WHERE destination = :destination ORDER BY seq"
        return [row[0] for row in await self.run(sql, destination=destination)]

    async def pending(self, destination: str = TO, *, lanes: Sequence[int] = range(LANES)) -> list[Delivery]:
        tracks = [Track(lane, priority) for lane in lanes for priority in PRIORITIES.values()]
        return await self.store.reading.read_pending(destination, tracks, 100)

    async def due(self, destination: str = TO, *, excluding: Sequence[int] = ()) -> list[Delivery]:
        return await self.store.reading.read_due(destination, range(LANES), 100, excluding)

    async def register(self, *destinations: str, lanes: int = LANES) -> UUID:
        """A worker that owns nothing yet."""
        worker = uuid4()
        served = dict.fromkeys(destinations or (TO,), ("broker", lanes))
        await self.store.ownership.register(worker, "w", served, LEASE)
        return worker

    async def own(self, destination: str = TO, *, worker: UUID | None = None, count: int = LANES) -> Fence:
        """A worker with lanes."""
        who = worker or await self.register(destination)
        claimed = await self.store.ownership.claim_lanes(who, destination, count)
        return Fence(who, destination, {lane.lane: lane.epoch for lane in claimed})

    async def fail(
        self, fence: Fence, *deliveries: Delivery, status: Status = Status.failed, delay: float = 0.0
    ) -> None:
        changed = await self.store.settling.record(fence, [verdict(one, status, delay=delay) for one in deliveries])
        assert changed == {one.seq for one in deliveries}  # noqa: S101 - a test's own premise


class StoreUnderTest:
    """Fixtures of every store contract. A subclass gives `store`, opened and upgraded, made with `clock`; `other`, a
    second one on the same database; `blanks`, two on a database without the schema; `adapter`, for the handles of
    `transaction()`; and `refusal`, what the driver raises when the database refuses a row."""

    @pytest.fixture
    def prefix(self) -> str:
        """What stands before the names of tables."""
        return ""

    @pytest.fixture
    def given(self, store: Store, adapter: Adapter, prefix: str) -> Arranged:
        return Arranged(store, adapter, prefix)


def verdict(delivery: Delivery, status: Status, **given: Any) -> Verdict:
    """What a relay would write of a delivery that came to this."""
    told: dict[str, Any] = {
        "seq": delivery.seq,
        "lane": delivery.lane,
        "was_status": delivery.status,
        "was_attempts": delivery.attempts,
        "status": status,
        "attempts": delivery.attempts + 1,
        "blocks": blocks(status, delivery.key),
    }
    return Verdict(**(told | given))


def _raw(sql: str, values: dict[str, Any]) -> Script[list[Row]]:
    rows = yield Call(Statement("raw", sql), values)
    return [tuple(row) for row in rows]
