"""What the contract tests of sagas set up."""

# ruff: noqa: S101 - a test's own premise

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace

from postlude.core.saga.decision import Record
from postlude.core.saga.instance import Instance, Phase, SagaStatus, StepState
from postlude.core.statement import Script
from postlude.ports.store import Store
from postlude.testing.contracts.arrange import Arranged, event

BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
NAME = "place_order"
MINE = f"saga:{NAME}"
"""Where the deliveries of that saga go."""
STEPS = (
    StepState("reserve", "a1", Phase.done, 1, "k:reserve", {"lamps": [1, 2.5, None, "ü"]}, by=UUID(int=7), order=1),
    StepState("charge", "b2", Phase.running, 2, "k:charge:2"),
    StepState("ship", "c3"),
)
ENDED = (SagaStatus.completed, SagaStatus.compensated)
LIVE = tuple(status for status in SagaStatus if status not in ENDED)


def saga(process_id: str = "o-1", *, at: datetime = BEGAN, **given: Any) -> Instance:
    """A run after its first decision."""
    told: dict[str, Any] = {
        "id": uuid4(),
        "name": NAME,
        "process_id": process_id,
        "version": 1,
        "hash": "h1",
        "steps": STEPS,
        "state": {"order_id": process_id},
        "created_at": at,
        "updated_at": at,
        "ended_at": at if given.get("status") in ENDED else None,
    }
    return Instance(**(told | given))


def following(one: Instance, **changes: Any) -> Instance:
    """What a decision makes of it."""
    at = one.updated_at + timedelta(seconds=1)
    ended_at = at if changes.get("status") in ENDED else None
    return replace(one, version=one.version + 1, updated_at=at, ended_at=ended_at, **changes)


def lines(*whats: str, at: datetime = BEGAN, **given: Any) -> list[Record]:
    return [Record(at, what, **given) for what in whats]


async def play(given: Arranged, script: Script[Any]) -> Any:
    """In a transaction of its own."""
    async with given.store.transaction() as tx:
        return await given.adapter.play(tx, script)


async def write(given: Arranged, one: Instance, history: Sequence[Record] = (), *, was: int | None = None) -> bool:
    before = one.version - 1 if was is None else was
    written: bool = await play(given, given.store.saga_scripts.write(one, history, was=before))
    return written


async def started(given: Arranged, *sagas: Instance) -> None:
    for one in sagas:
        assert await write(given, one, was=0)


async def on_its_way(given: Arranged, saga_id: UUID, to: str = MINE, **options: Any) -> UUID:
    """An event of a saga with a delivery."""
    one = event(saga_id=saga_id, to=(to,), **options)
    await given.append(one)
    return one.event_id


async def now(store: Store) -> datetime:
    """The database's clock."""
    at: datetime = (await store.server())["now"]
    return at
