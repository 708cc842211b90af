"""Any interleaving of what callers, workers, crashes and operators do keeps promises 1, 2, 4 and 5.

A worker is turned by hand, one look and one read at a time; its broker answers when a rule says so, even long after
the worker was buried. What should be true is kept in a model beside the store.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from postlude.core.outcome import HELD, SENT, Failed, Fault, Outcome, Parked, Rejected, Unavailable
from postlude.ports.broker import BrokerFeatures
from postlude.ports.ownership import Lease
from postlude.runtime.worker import Worker
from tests.databases import Databases
from tests.engine import Held, Noted, connect, routed_app

T = TypeVar("T")
KEYS = ["a", "b", "c"]
LEASE = 15.0
TWO_DAYS = 48 * 3600.0
FAULT = Fault("Refused")
ANSWERS = ["sent", "sent", "sent", "failed", "failed", "rejected", "parked", "unavailable"]
AN_EARLIER_TIME = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass
class Fact:
    """What the model knows of an append: between which steps it was made, and whether it may be out of order."""

    key: str
    began: int
    committed: int | None = None
    is_excused: bool = False
    """It was dead, parked or discarded once: its key went on without it."""


class Publication:
    """A call to the broker that waits for its answer."""

    def __init__(self, worker: Worker, messages: Sequence[Any]) -> None:
        self.worker = worker
        self.owner = worker.id
        self.messages = messages
        self.answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()


@dataclass
class SlowBroker:
    """Everything that is published waits here."""

    waiting: list[Publication] = field(default_factory=list)
    worker: Worker | None = None
    features = BrokerFeatures(ordered_failure=True)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Any]) -> list[Outcome]:
        assert self.worker is not None
        publication = Publication(self.worker, messages)
        self.waiting.append(publication)
        return await publication.answer


class HandRenewed:
    """An ownership side whose renewing thread does nothing: the machine says who is alive."""

    def __init__(self, ownership: Any) -> None:
        self.real = ownership

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Lease]:
        yield self

    async def renew(self, worker: UUID, lease: float) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Engine:
    """One app with one worker that lives and others that died, all turned by hand."""

    def __init__(self, url: str) -> None:
        app = routed_app(url, retry={"base_delay_seconds": 0, "max_attempts": 3}, lane={"lease": LEASE, "stall": 3600})
        self.leases = app.store.ownership
        app.store.ownership = HandRenewed(app.store.ownership)
        self.app = app
        self.worker: Worker | None = None
        self.lives: list[tuple[Worker, SlowBroker]] = []

    async def begin(self) -> None:
        """A worker comes; whoever was there before is dead."""
        broker = SlowBroker()
        opened: dict[str, Any] = self.app._opened_brokers
        opened["default"] = broker  # it only publishes
        broker.worker = self.worker = self.app.engine.new_worker(duties=False)
        self.lives.append((self.worker, broker))
        await self.worker.start()

    @property
    def dead(self) -> list[UUID]:
        return [worker.id for worker, _ in self.lives if worker is not self.worker and worker.id is not None]

    async def turn(self) -> None:
        """Look, share, read and start deliveries, once."""
        assert self.worker is not None
        await self.worker.tick()
        await self.worker._watch.look()
        relay = self.worker.relays["default"]
        relay._reader.next_due = relay._reader._next_sweep = relay._breaker._until = 0.0
        await relay._read()
        relay._launch()
        await self.rest()

    async def rest(self) -> None:
        """Until every delivery has ended or waits for the broker."""
        for worker, broker in self.lives:
            while len(worker.relays["default"]._tasks) > len(broker.waiting):
                await asyncio.sleep(0.0005)

    @property
    def publications(self) -> list[Publication]:
        return [one for _, broker in self.lives for one in broker.waiting]

    async def answer(self, publication: Publication, outcomes: list[Outcome]) -> None:
        for _, broker in self.lives:
            if publication in broker.waiting:
                broker.waiting.remove(publication)
        publication.answer.set_result(outcomes)
        await self.rest()

    async def advance(self, seconds: float) -> None:
        """Time goes on; whoever lives has renewed meanwhile."""
        self.app.clock.advance(seconds)
        if self.worker is not None and self.worker.id is not None:
            async with self.leases.lease() as lease:
                await lease.renew(self.worker.id, LEASE)

    async def close(self) -> None:
        for publication in self.publications:
            publication.answer.cancel()
        for worker, _ in self.lives:
            await worker.stop(timeout=1)
        await self.app.close()


class StoreMachine(RuleBasedStateMachine):
    """Rules are what may happen; after each one the promises are checked."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.url = url
        self.has_late = not url.startswith("sqlite")
        self.step = 0
        self.facts: dict[UUID, Fact] = {}
        self.undone: set[UUID] = set()
        self.received: dict[UUID, int] = {}
        """By event: the step of its first delivery."""
        self.discarded: set[UUID] = set()
        self.late: list[tuple[Held, UUID]] = []
        self.buried: set[UUID] = set()
        self.engine, self.eyes = self.run(self._begin())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _begin(self) -> tuple[Engine, Any]:
        engine = Engine(self.url)
        await engine.app.start()
        await engine.begin()
        return engine, await connect(self.url)

    def teardown(self) -> None:
        try:
            self.run(self._finish())
            self.check_that_all_arrived()
        finally:
            self.run(self._close())
            self.runner.close()

    async def _close(self) -> None:
        await self.engine.close()
        closed = self.eyes.close()
        if inspect.isawaitable(closed):
            await closed

    async def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        if isinstance(self.eyes, sqlite3.Connection):
            return self.eyes.execute(sql).fetchall()
        return [tuple(row) for row in await self.eyes.fetch(sql)]

    # ------------------------------------------------------------ callers

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    def append(self, keys: list[str]) -> None:
        for key in keys:
            self.step += 1
            (event_id,) = self.run(self._append(key, 1))
            self.facts[event_id] = Fact(key, self.step, self.step)

    @rule(key=st.sampled_from(KEYS), count=st.integers(2, 4))
    def append_many(self, key: str, count: int) -> None:
        self.step += 1
        for event_id in self.run(self._append(key, count)):
            self.facts[event_id] = Fact(key, self.step, self.step)

    async def _append(self, key: str, count: int) -> list[UUID]:
        app = self.engine.app
        async with app.transaction() as tx:
            return await app.outbox.append_many(tx, [Noted(key=key, n=self.step) for _ in range(count)])

    @precondition(lambda self: self.has_late and len(self.late) < 2)
    @rule(key=st.sampled_from(KEYS))
    def append_and_stay_open(self, key: str) -> None:
        self.step += 1
        held, event_id = self.run(self._append_late(key))
        self.late.append((held, event_id))
        self.facts[event_id] = Fact(key, self.step)

    async def _append_late(self, key: str) -> tuple[Held, UUID]:
        connection = await connect(self.url)
        await connection.execute("BEGIN")
        return Held(connection), await self.engine.app.outbox.append(connection, Noted(key=key, n=self.step))

    @precondition(lambda self: self.late)
    @rule(is_kept=st.booleans())
    def end_a_late_transaction(self, is_kept: bool) -> None:
        held, event_id = self.late.pop(0)
        self.run(held.commit() if is_kept else held.rollback())
        self.run(held.connection.close())
        self.step += 1
        if is_kept:
            self.facts[event_id].committed = self.step
        else:
            del self.facts[event_id]
            self.undone.add(event_id)

    @rule(key=st.sampled_from(KEYS))
    def append_and_roll_back(self, key: str) -> None:
        self.undone.update(self.run(self._append_in_vain(key)))

    async def _append_in_vain(self, key: str) -> list[UUID]:
        app = self.engine.app
        try:
            async with app.transaction() as tx:
                ids = [await app.outbox.append(tx, Noted(key=key, n=self.step))]
                raise ZeroDivisionError
        except ZeroDivisionError:
            return ids

    # ------------------------------------------------------------ workers

    @rule()
    def turn(self) -> None:
        self.run(self.engine.turn())

    @rule(answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=6), turns=st.integers(1, 4))
    def work(self, answers: list[str], turns: int) -> None:
        """What a worker does all day."""
        for _ in range(turns):
            self.run(self.engine.turn())
            for publication in self.engine.publications:
                if publication.worker is self.engine.worker:
                    self.run(self.engine.answer(publication, self._outcomes(publication, answers)))
            self._check_order()
            answers = answers[1:] + answers[:1]

    @rule(turns=st.integers(1, 4))
    def work_well(self, turns: int) -> None:
        self.work(["sent"], turns)

    @precondition(lambda self: self.engine.publications)
    @rule(which=st.integers(0, 5), answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4))
    def answer(self, which: int, answers: list[str]) -> None:
        """The broker answers some worker, who may be dead and even buried by now."""
        publication = self.engine.publications[which % len(self.engine.publications)]
        outcomes = self._outcomes(publication, answers)
        is_stale = publication.owner in self.buried
        before = self.run(self._rows()) if is_stale else None
        self.run(self.engine.answer(publication, outcomes))
        if is_stale:
            assert self.run(self._rows()) == before, "a buried worker changed what others own"

    def _outcomes(self, publication: Publication, answers: list[str]) -> list[Outcome]:
        self.step += 1
        outcomes: list[Outcome] = []
        stopped: set[str] = set()
        is_owner = publication.owner not in self.buried
        for place, message in enumerate(publication.messages):
            event_id, key = UUID(str(message.id)), self.facts[UUID(str(message.id))].key
            answer = answers[place % len(answers)]
            if key in stopped:
                outcomes.append(HELD)
                continue
            if answer == "sent":
                self.step += 1
                self.received.setdefault(event_id, self.step)
            else:
                stopped.add(key)
                # Whether a verdict of a crashed worker still counts depends on its burial; its key may go on or not.
                self.facts[event_id].is_excused |= answer in ("rejected", "parked") or not is_owner
            outcomes.append(_outcome(answer))
        return outcomes

    @rule(is_over=st.booleans())
    def crash(self, is_over: bool) -> None:
        """In the middle of something: all that it knew is gone, its row and its lanes are still there. Another one
        begins, before or after the lease has ended."""
        self.run(self.engine.turn())
        if is_over:
            self.engine.worker = None
            self._bury()
        self.run(self.engine.begin())

    @precondition(lambda self: self.engine.dead)
    @rule()
    def bury_the_dead(self) -> None:
        self._bury()

    def _bury(self) -> None:
        self.run(self.engine.advance(LEASE + 1))
        self.run(self.engine.app.store.ownership.bury_workers())
        self.buried.update(self.engine.dead)

    # ------------------------------------------------------------ operators

    @rule(action=st.sampled_from(["requeue", "requeue", "discard", "bury"]), which=st.integers(0, 5))
    def decide(self, action: str, which: int) -> None:
        wanted = ("dead",) if action == "requeue" else ("pending", "failed", "scheduled")
        open_ = [one.event_id for one in self.run(self.engine.app.insight.list()) if one.status in wanted]
        if open_:
            chosen = open_[which % len(open_)]
            assert self.run(getattr(self.engine.app.actions, action)([chosen], actor="ann", reason="so")) == [chosen]
            self.facts[chosen].is_excused = True
            if action == "discard":
                self.discarded.add(chosen)

    @rule()
    def retire(self) -> None:
        """Two days go by; what was settled is forgotten, what is open never is."""
        self.run(self.engine.advance(TWO_DAYS))
        upkeep = self.engine.app.store.upkeep
        self.run(upkeep.retire_partitions(24))
        self.run(upkeep.prune(events_hours=24, dead_hours=0, limit=1000))
        if self.engine.dead:
            self._bury()

    # ------------------------------------------------------------ promises

    async def _rows(self) -> tuple[Any, Any]:
        deliveries = await self._ask(
            "SELECT seq, event_id, status, attempts, starts, blocks, last_error FROM postlude_delivery"
        )
        return sorted(deliveries, key=str), sorted(
            await self._ask("SELECT seq, event_id, outcome, worker FROM postlude_receipt"), key=str
        )

    @invariant()
    def promise_1_what_was_rolled_back_is_nowhere(self) -> None:
        if self.undone:
            events = {_uuid(row[0]) for row in self.run(self._ask("SELECT event_id FROM postlude_event"))}
            assert not self.undone & events
            assert not self.undone & set(self.received)

    @invariant()
    def promise_2_what_was_committed_is_open_or_delivered_or_discarded(self) -> None:
        open_, receipts = self.run(self._rows())
        waiting = {_uuid(row[1]) for row in open_}
        committed = {event_id for event_id, fact in self.facts.items() if fact.committed is not None}
        assert waiting <= committed
        assert committed <= waiting | set(self.received) | self.discarded
        sent = {_uuid(row[1]) for row in receipts if row[2] == "sent"}
        assert sent <= set(self.received), "a receipt without a delivery"
        assert {_uuid(row[1]) for row in receipts if row[2] == "discarded"} <= self.discarded

    @invariant()
    def promise_4_each_key_is_in_order(self) -> None:
        self._check_order()

    def _check_order(self) -> None:
        for (event_id,) in self.run(self._ask("SELECT event_id FROM postlude_delivery WHERE status = 'dead'")):
            self.facts[_uuid(event_id)].is_excused = True
        for late_id, late in self.facts.items():
            if late_id not in self.received:
                continue
            for early_id, early in self.facts.items():
                if early.key != late.key or early.is_excused or early.committed is None:
                    continue
                if early.committed < late.began:
                    place = self.received.get(early_id)
                    assert place is not None, f"{late} came before {early}, which did not come at all"
                    assert place < self.received[late_id], f"{late} came before {early}"

    async def _finish(self) -> None:
        """Everything recovers: a last worker drains what is left."""
        for held, event_id in self.late:
            await held.rollback()
            await held.connection.close()
            del self.facts[event_id]
            self.undone.add(event_id)
        self.late.clear()
        for publication in self.engine.publications:
            publication.answer.cancel()
        self.engine.worker = None
        await self.engine.advance(LEASE + 1)
        await self.engine.begin()
        for _ in range(200):
            await self.engine.turn()
            for publication in self.engine.publications:
                if publication.worker is self.engine.worker:
                    await self.engine.answer(publication, self._outcomes(publication, ["sent"]))
            counts = await self.engine.app.insight.counts()
            if sum(counts.values()) == counts["dead"]:
                return
            await self.engine.advance(3600)
        raise AssertionError(f"still open: {await self._rows()}")

    def check_that_all_arrived(self) -> None:
        dead = {letter.event_id for letter in self.run(self.engine.app.insight.list(status="dead"))}
        missing = set(self.facts) - set(self.received) - self.discarded - dead
        assert not missing
        self.promise_4_each_key_is_in_order()


def _outcome(answer: str) -> Outcome:
    match answer:
        case "sent":
            return SENT
        case "failed":
            return Failed(FAULT)
        case "rejected":
            return Rejected(FAULT)
        case "parked":
            return Parked(AN_EARLIER_TIME + timedelta(days=1))
        case _:
            return Unavailable(FAULT)


def _uuid(value: Any) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        phases=[Phase.generate],  # add Phase.shrink to look into a failure: it takes minutes
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_any_interleaving_keeps_the_promises_on_sqlite(sqlite_database: Databases) -> None:
    _run(sqlite_database, _settings(25, 50))


def test_any_interleaving_keeps_the_promises_on_postgres(any_postgres_database: Databases) -> None:
    _run(any_postgres_database, _settings(8, 40))


def _run(databases: Databases, chosen: settings) -> None:
    def machine() -> StoreMachine:
        return StoreMachine(databases.fresh())

    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type]  # a callable does
