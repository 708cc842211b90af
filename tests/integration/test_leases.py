"""A worker that is not heard of loses its lanes, and begins again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest

from postlude import Context, Postlude
from postlude.brokers.memory import MemoryBroker
from postlude.core.outcome import Failed, Fault, Outcome
from postlude.runtime.worker import Worker
from tests.engine import LANES, Noted, die, key_in, make_app, note, published, query, routed_app, until, workers
from tests.owning import LEASE, PAST_THE_LEASE, is_empty, lanes_of

# ---------------------------------------------------------------- losing the lease


async def test_lanes_are_taken_over_after_a_lease_ends(database_url: str) -> None:
    app = routed_app(database_url)
    async with app, workers(app, 1) as (first,):
        await note(app, "a", 1)
        await die(first)
        app.clock.advance(LEASE - 1)
        async with workers(app, 1) as (second,):
            assert lanes_of(second) == set(), "a lease that holds is respected"
        app.clock.advance(2)
        async with workers(app, 1) as (third,):
            assert lanes_of(third) == set(range(LANES))
            assert (await third.drain_once())[0] == 1
        assert published(app) == [1]


async def test_a_hung_loop_loses_its_lanes(database_url: str) -> None:
    """The thread could renew for ever; it does so only while the loop gives a beat."""
    app, other = routed_app(database_url, lane={"lease": 0.5, "stall": 0.2}), routed_app(database_url)
    async with app, other, workers(app, 1) as (hung,):
        assert lanes_of(hung) == set(range(LANES))
        async with other.worker() as healthy:  # with a lease that no loaded machine loses
            await until(lambda: lanes_of(healthy) == set(range(LANES)))
        assert healthy.id != hung.id
        assert await query(database_url, "SELECT min(crashes) FROM postlude_lane WHERE destination = 'default'") == [
            (1,)
        ]


async def test_a_worker_whose_delivery_never_ends_loses_its_lanes(any_postgres_url: str) -> None:
    """Here a broker that neither answers nor fails, beyond any patience."""
    app = routed_app(any_postgres_url, lane={"lease": 0.5})
    broker = app._opened_brokers["default"] = Gate()
    async with app, app.worker() as worker:
        relay = worker.relays["default"]
        relay.terms = msgspec.structs.replace(relay.terms, patience=0.3)
        await note(app, "a", 1)
        await broker.entered.wait()
        first = worker.id
        await until(lambda: _is_buried(any_postgres_url, first))
        broker.gate.set()
        await until(lambda: is_empty(any_postgres_url))
    assert published(app)[0] == 1


async def test_loop_beats_keep_the_lease_of_a_worker_that_is_alive(database_url: str) -> None:
    """Long enough that a loaded machine does not stand still for it; watched until the first lease would have ended."""
    app = routed_app(database_url, lane={"lease": 3, "stall": 2.5})
    async with app, app.worker() as worker:
        first, deadline = worker.id, time.monotonic() + 3.5
        while time.monotonic() < deadline:
            assert await app.store.ownership.bury_workers() == 0
            await asyncio.sleep(0.05)
        assert worker.id == first


async def test_a_busy_loop_does_not_lose_its_lanes(any_postgres_url: str) -> None:
    """Blocked for several leases, but not for longer than `lane.stall`."""
    lease = 2.0
    app, other = routed_app(any_postgres_url, lane={"lease": lease, "stall": 30}), routed_app(any_postgres_url)
    freed: list[int] = []

    async def bury() -> None:
        deadline = time.monotonic() + 2.5 * lease
        async with other:
            while time.monotonic() < deadline:
                freed.append(await other.store.ownership.bury_workers())
                await asyncio.sleep(0.05)

    async with app, app.worker() as worker:
        first = worker.id
        elsewhere = threading.Thread(target=lambda: asyncio.run(bury()))
        elsewhere.start()
        elsewhere.join()  # this loop stands still meanwhile
        assert freed
        assert sum(freed) == 0
        assert worker.id == first
        await note(app, "a", 1)
        await until(lambda: published(app) == [1])


async def test_a_buried_worker_begins_again_under_a_new_id(database_url: str) -> None:
    app = routed_app(database_url, lane={"lease": 2})
    async with app, app.worker() as worker:
        await until(lambda: len(lanes_of(worker)) == LANES)
        first = worker.id
        await bury(app, worker)
        assert worker.id != first
        await note(app, "a", 1)
        await until(lambda: published(app) == [1])
        assert [live.id for live in await app.insight.workers()] == [worker.id]


@pytest.mark.parametrize("outcome", [None, Failed(Fault("Refused"))], ids=["sent", "failed"])
async def test_a_settle_of_a_buried_worker_does_not_cost_it_the_lanes_it_took_again(
    database_url: str, outcome: Failed | None
) -> None:
    """The stale settle is refused; the lanes that the worker owns by then have another epoch and stay its own, and
    the entry is delivered under it."""
    app = routed_app(database_url, lane={"lease": 2})
    broker = app._opened_brokers["default"] = Gate()
    outcomes = [outcome]
    broker.fate = lambda _: outcomes.pop() if outcomes else None
    key = key_in(9)
    async with app, app.worker() as worker:
        await note(app, key, 1)
        await broker.entered.wait()
        await bury(app, worker)
        broker.gate.set()
        await note(app, key, 2)
        await until(lambda: is_empty(database_url))
        assert list(dict.fromkeys(published(app))) == [1, 2]
        assert len(lanes_of(worker)) == LANES


async def test_a_worker_that_is_buried_while_it_begins_again_tries_once_more(any_postgres_url: str) -> None:
    app = routed_app(any_postgres_url, lane={"lease": 2})
    async with app, app.worker() as worker:
        await until(lambda: len(lanes_of(worker)) == LANES)
        first, register = worker.id, app.store.ownership.register
        lives: list[UUID] = []

        async def register_too_late(id_: UUID, *given: Any) -> None:
            lives.append(id_)
            await register(id_, *given)
            if len(lives) == 1:
                app.clock.advance(PAST_THE_LEASE)

        app.store.ownership.register = register_too_late  # type: ignore[method-assign, assignment]
        await bury(app, worker)
        assert len(lives) == 2
        assert worker.id not in (first, lives[0])


async def test_a_worker_that_is_buried_while_it_starts_begins_again(any_postgres_url: str) -> None:
    """A process that was stopped between its registration and its first look at the others."""
    app = routed_app(any_postgres_url)
    register = app.store.ownership.register
    lives: list[UUID] = []

    async def register_too_late(id_: UUID, *given: Any) -> None:
        lives.append(id_)
        await register(id_, *given)
        if len(lives) == 1:
            app.clock.advance(PAST_THE_LEASE)

    app.store.ownership.register = register_too_late  # type: ignore[method-assign, assignment]
    async with app, app.worker() as worker:
        await until(lambda: len(lanes_of(worker)) == LANES)
    assert len(lives) == 2


# ---------------------------------------------------------------- after a crash


async def test_after_a_burial_a_lane_runs_one_entry_at_a_time_and_commits_the_attempt_first(database_url: str) -> None:
    app = make_app(database_url)
    lane = 11
    keys: list[str] = []
    for _ in range(4):
        keys.append(key_in(lane, without=keys))
    running, most = 0, 0
    seen: list[Any] = []

    @app.on(Noted, name="handler")
    async def handle(noted: Noted, ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        stored = await query(database_url, "SELECT status, attempts FROM postlude_delivery WHERE status <> 'pending'")
        seen.append((stored, ctx.attempt))
        running -= 1

    async with app:
        for n, key in enumerate(keys):
            await note(app, key, n)
        async with workers(app, 1) as (first,):
            await die(first)
            app.clock.advance(PAST_THE_LEASE)
            async with workers(app, 1) as (second,):
                assert (await second.drain_once())[0] == len(keys)
                assert most == 1
                assert seen == [([("claimed", 1)], 1)] * len(keys)

                seen.clear()
                for n, key in enumerate(keys):
                    await note(app, key, n)
                assert (await second.drain_once())[0] == len(keys)
                assert all(stored == [] for stored, _ in seen), "above the last seq at burial nothing is special"


async def test_an_entry_that_takes_its_worker_down_three_times_is_a_poison_dead_letter(database_url: str) -> None:
    app = make_app(database_url)
    deadly, innocent = key_in(11), key_in(11, without={key_in(11)})
    elsewhere = key_in(12)
    handled: list[str] = []
    dying = asyncio.Event()

    @app.on(Noted, name="handler")
    async def handle(noted: Noted) -> None:
        if noted.key == deadly:
            dying.set()
            await asyncio.Event().wait()
        handled.append(noted.key)

    async with app:
        for key in (deadly, innocent, elsewhere):
            await note(app, key, 1)
        lives = 0
        while True:
            lives += 1
            worker = app.engine.new_worker(duties=False)
            await worker.start()
            dying.clear()
            draining = asyncio.create_task(worker.drain_once())
            death = asyncio.create_task(dying.wait())
            await asyncio.wait([draining, death], return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                await worker.stop()
                death.cancel()
                break
            await _take_down(worker, draining)
            app.clock.advance(PAST_THE_LEASE)
        assert lives == 5, "killed once as usual, three times with care, and then no more"
        assert sorted(handled) == sorted([innocent, elsewhere])
        (letter,) = await app.insight.list(status="dead")
        assert (letter.key, letter.error) == (deadly, "Poison (delivery.poison)")


async def _take_down(worker: Worker, draining: asyncio.Task[Any]) -> None:
    """The process is gone in the middle of it: nothing is settled, the connection's transaction is rolled back."""
    draining.cancel()
    for relay in worker.relays.values():
        relay.stop()
        await relay.quiesce(0)
    await die(worker)


class Gate(MemoryBroker):
    """A broker that says when it is asked, and answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()

    async def publish(self, messages: Sequence[Any]) -> list[Outcome]:
        self.entered.set()
        await self.gate.wait()
        return await super().publish(messages)


async def bury(app: Postlude, worker: Worker) -> None:
    """Its lease ends now, by the database's clock, and somebody notices: we, or the worker itself."""
    first = worker.id
    app.clock.advance(PAST_THE_LEASE)
    await app.store.ownership.bury_workers()
    await until(lambda: worker.id != first and len(lanes_of(worker)) == LANES)


async def _is_buried(url: str, worker: UUID | None) -> bool:
    return not any(UUID(str(id_)) == worker for (id_,) in await query(url, "SELECT id FROM postlude_worker"))
