"""The outside world breaks at every statement of settling, parking, abandoning, requeueing and completing a call: the
effect happens at most once for each idempotency key, a completion exactly once, every recorded outcome has its audit
record, and no secret is left."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from postlude import (
    DatabaseUnavailable,
    Erasure,
    ErasureCompleted,
    Postlude,
    ResolverError,
    Schedule,
    Status,
    SubjectRef,
)
from tests.calling import WHO, Verifying, calling_app, erase, only_call, require_books, secrets, trail
from tests.engine import query
from tests.outside import KILLED, LENT, LOST, OWN, REFUSED, Faults, Killed

HOUR = 3600.0
HEALED = 120.0
"""Seconds after which a claim of a process that is gone is over."""
RECORD = ("v.was_status", "coalesce(v.value ->> 9, d.last_error)")
"""What the statement says that records verdicts, on each database."""
WAYS = [
    pytest.param(after, how, id=f"{how} {'after' if after else 'before'}")
    for after, how in ((False, LOST), (True, LOST), (False, KILLED), (True, KILLED), (False, REFUSED))
]


class Exact(Verifying):
    """Does a thing once for each key, and tells the faults when it has done it."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults
        self.refuses: set[str] = set()
        """Subjects, by their value here."""

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        self.keys.append(idempotency_key)
        self.faults.arm()
        if ref.value in self.refuses:
            raise ResolverError("not now")
        known = idempotency_key in self.effects
        self.effects[idempotency_key] = 1
        return Erasure(already_absent=known)


class Expiring:
    """Lets data expire at a horizon of its own."""

    name = "expiring"

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.keys: list[str] = []
        self.horizons: dict[str, datetime] = {}
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def schedule_erasure(self, ref: SubjectRef, *, idempotency_key: str) -> Schedule:
        self.keys.append(idempotency_key)
        until = self.horizons.setdefault(idempotency_key, self.now() + timedelta(hours=2))
        self.faults.arm()
        return Schedule(already_absent=True) if until <= self.now() else Schedule(expires_at=until)


class World:
    """One app whose worker goes on after every fault."""

    def __init__(self, url: str, faults: Faults) -> None:
        self.url = url
        self.faults = faults
        self.vendor, self.expiring = Exact(faults), Expiring(faults)
        self.app = self._app()
        self._numbers = itertools.count(1)

    def _app(self) -> Postlude:
        app = calling_app(self.url, self.vendor, self.expiring)
        self.expiring.now = lambda: datetime.now(UTC) + timedelta(seconds=app.clock.ahead)
        app.route(ErasureCompleted)
        return app

    def subject(self) -> str:
        return f"subject-{next(self._numbers)}"

    async def work(self, ahead: float = 0.0) -> None:
        self.app.clock.advance(ahead)
        try:
            await self.app.drain()
        except (DatabaseUnavailable, Killed):
            assert self.faults.has_struck

    async def each_statement(self, after: bool, how: str, least: int) -> AsyncIterator[str]:
        """A subject for each statement that can break, until all have."""
        for at in itertools.count(1):
            self.faults.plan(at, after=after, how=how)
            yield self.subject()
            if not self.faults.has_struck:
                assert at > least, f"only {self.faults.seen} were watched"
                return

    async def require(self, subject: str, key: str, group: UUID, **expected: int) -> None:
        """What has been done for a subject, to the number."""
        assert Counter(await trail(self.app, subject)) == {
            "erasure_requested": 1, "erasure_local_completed": 1, "erasure_completed": 1, **expected,
        }  # fmt: skip
        told = f"SELECT count(*) FROM postlude_event WHERE correlation_id = '{group}' AND source = 'postlude'"
        assert await query(self.url, told + " AND type = 'postlude.erasure.completed'") == [(1,)]
        assert set(self.vendor.keys + self.expiring.keys) >= {key}
        await require_books(self.url)


@pytest.fixture
async def world(url: str, where: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    faults = Faults(*where)
    faults.install(monkeypatch)
    made = World(url, faults)
    yield made
    await made.app.close()


@pytest.mark.parametrize("where", [(LENT,)], ids=["lent"])
@pytest.mark.parametrize(("after", "how"), WAYS)
async def test_settling_and_completing(world: World, url: str, after: bool, how: str) -> None:
    async for subject in world.each_statement(after, how, least=10):  # six of the call, four of its verification
        result = await erase(world.app, subject=subject)
        (entry,) = result.calls
        await world.work()
        await world.work(HEALED)
        await world.work()
        expected = {"erasure_step_succeeded": 1, "erasure_external_verified": 1}
        await world.require(subject, str(entry), result.group_id, **expected)
        assert await secrets(url) == []
        assert world.vendor.effects[str(entry)] == 1
        repeated = world.vendor.keys.count(str(entry))
        assert repeated == 1 or how == KILLED, "only the bookkeeping is repeated"
    assert set(world.vendor.effects.values()) == {1}


@pytest.mark.parametrize("where", [(LENT,)], ids=["lent"])
@pytest.mark.parametrize(("after", "how"), WAYS)
async def test_parking(world: World, url: str, after: bool, how: str) -> None:
    async for subject in world.each_statement(after, how, least=4):
        result = await erase(world.app, "expiring", subject=subject)
        (entry,) = result.calls
        await world.work()
        await world.work(HEALED)
        call = await only_call(world.app, subject)
        assert (call.status, call.attempts) == (Status.scheduled, 0)
        assert call.next_attempt_at == world.expiring.horizons[str(entry)]
        assert Counter(await trail(world.app, subject))["erasure_expiry_scheduled"] == 1
        world.faults.rest()
        await world.work(3 * HOUR)
        await world.work()
        expected = {"erasure_step_succeeded": 1, "erasure_expiry_scheduled": 1}
        await world.require(subject, str(entry), result.group_id, **expected)
    assert await secrets(url) == []


@pytest.mark.parametrize("where", [(OWN, *RECORD)], ids=["own"])
@pytest.mark.parametrize(("after", "how"), WAYS)
async def test_abandoning(world: World, url: str, after: bool, how: str) -> None:
    async for subject in world.each_statement(after, how, least=1 if url.startswith("postgres") else 2):
        world.vendor.refuses = {"cus_ada"}
        result = await erase(world.app, subject=subject)
        (entry,) = result.calls
        await world.work()
        await world.work(HEALED)
        await world.work(HEALED)
        call = await only_call(world.app, subject)
        assert (call.status, call.last_error) == (Status.dead, "ResolverError")
        assert Counter(await trail(world.app, subject))["erasure_step_failed"] == 1
        world.vendor.refuses.clear()
        world.faults.rest()
        await world.app.erasure.requeue([entry], **WHO)
        await world.work()
        await world.work()
        expected = {"erasure_step_failed": 1, "erasure_requeued": 1, "erasure_step_succeeded": 1}
        await world.require(subject, str(entry), result.group_id, erasure_external_verified=1, **expected)
    assert await secrets(url) == []


@pytest.mark.parametrize("where", [(OWN, "erasure_requeued")], ids=["own"])
@pytest.mark.parametrize(("after", "how"), WAYS)
async def test_requeueing(world: World, url: str, after: bool, how: str) -> None:
    async for subject in world.each_statement(after, how, least=1 if url.startswith("postgres") else 3):
        world.vendor.refuses = {"cus_ada"}
        result = await erase(world.app, subject=subject)
        (entry,) = result.calls
        world.vendor.faults = Faults(OWN, "nothing")
        await world.work()
        world.vendor.refuses.clear()
        world.faults.arm()
        for _ in range(2):  # an operator who sees an error asks again
            try:
                await world.app.erasure.requeue([entry], **WHO)
            except (DatabaseUnavailable, Killed):
                assert world.faults.has_struck
        world.faults.rest()
        await world.work()
        await world.work()
        expected = {"erasure_step_failed": 1, "erasure_requeued": 1, "erasure_step_succeeded": 1}
        await world.require(subject, str(entry), result.group_id, erasure_external_verified=1, **expected)
        assert world.vendor.effects[str(entry)] == 1
    assert await secrets(url) == []
