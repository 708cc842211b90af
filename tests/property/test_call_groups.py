"""Whatever happens to calls in whatever order, a group is open by as many calls as there are, and complete, once, exactly
when none is left."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postlude.core.calls import CallOperation
from postlude.core.delivery import Delivery
from postlude.core.lifecycle import Status
from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.enlist.sqlite3 import Sqlite3Adapter
from postlude.testing.contracts.arrange import Arranged, verdict
from postlude.testing.contracts.call_arrange import VENDOR, WHO, call, die, opened, park, settle, under_way
from tests.calling import calling_app, require_books
from tests.databases import Databases
from tests.engine import query

STEPS = 40
SUBJECTS = ("a", "b", "c")
SEEDS = [pytest.param("sqlite", seed, marks=pytest.mark.sqlite) for seed in range(6)]
SEEDS += [pytest.param("postgres-16", seed, marks=pytest.mark.postgres) for seed in range(6, 8)]


class Life:
    """One worker, one operator and some callers, who do whatever chance says."""

    def __init__(self, given: Arranged, chance: random.Random, clock: Any) -> None:
        self.given = given
        self.chance = chance
        self.clock = clock
        self.fence: Any = None
        self.claimed: dict[int, Delivery] = {}
        self.requests = 0

    async def step(self) -> str:
        act = self.chance.choice([self.ask, self.ask, self.take, self.take, *[self.end] * 4, *[self.operate] * 3])
        await act()
        return act.__name__

    async def ask(self) -> None:
        operation = self.chance.choice(list(CallOperation))
        whom = self.chance.choice(SUBJECTS)
        calls = [
            call(whom, operation=operation, lane=self.chance.randrange(8)) for _ in range(self.chance.randrange(4))
        ]
        await opened(self.given, calls, whom=whom, operation=operation, tells=self.chance.random() < 0.3)
        self.requests += 1

    async def take(self) -> None:
        self.clock.advance(31)  # what was claimed and let go, and what was parked, is due again
        self.claimed.update({one.seq: one for one in await under_way(self.given, self.fence)})

    async def end(self) -> None:
        """One that is under way, or was before it was taken anew: then nothing may change."""
        if not self.claimed:
            return
        one = self.claimed.pop(self.chance.choice(sorted(self.claimed)))
        until = datetime.now(UTC) + timedelta(seconds=self.clock.ahead + 5)
        ways: list[Callable[[], Awaitable[Any]]] = [
            lambda: settle(self.given, self.fence, one),
            lambda: die(self.given, self.fence, one),
            lambda: park(self.given, self.fence, one, until=until, least=1.0, horizon=b'"h"'),
            lambda: self.given.store.settling.record(self.fence, [verdict(one, Status.failed, attempts=one.attempts)]),
        ]
        await self.chance.choice(ways)()

    async def operate(self) -> None:
        found = [one.entry_id for one in await self.given.store.calls.calls(limit=100)]
        some = self.chance.sample(found, min(len(found), self.chance.randrange(1, 5)))
        action = self.chance.choice(["discard", "bury", "requeue", "requeue calls"])
        if action == "requeue calls":
            await self.given.store.calls.requeue(some, **WHO)
        else:
            await self.given.store.operating.act(action, some, **WHO, destination=None)


@pytest.mark.parametrize(("server", "seed"), SEEDS)
async def test_groups_are_open_by_what_is_open(
    server: str, seed: int, databases_on: Callable[[str], Databases]
) -> None:
    url = databases_on(server).fresh()
    app = calling_app(url)
    await app.start()
    given = Arranged(app.store, Sqlite3Adapter() if server == "sqlite" else AsyncpgAdapter())
    life = Life(given, random.Random(seed), app.clock)
    life.fence = await given.own(VENDOR)
    done = set()
    for _ in range(STEPS):
        done.add(await life.step())
        await require_books(url)
    dead = "SELECT count(*) FROM postlude_secret s JOIN postlude_delivery d ON d.event_id = s.event_id"
    assert await query(url, dead + " WHERE d.status = 'dead' AND s.part = 'corrections'") == [(0,)]
    for one in await app.store.calls.calls(limit=1000):
        await app.store.operating.act("bury", [one.entry_id], **WHO, destination=None)
        await app.store.operating.act("discard", [one.entry_id], **WHO, destination=None)
    await require_books(url)
    left = await app.store.calls.calls(limit=1000)
    assert {one.status for one in left} <= {Status.claimed}, "only what is under way cannot be discarded"
    told = "SELECT count(*) FROM postlude_event WHERE type LIKE 'postlude.%.completed'"
    asked = "SELECT count(*) FROM postlude_group WHERE completed_at IS NOT NULL AND tells"
    assert await query(url, told) == await query(url, asked.replace("tells", "CAST(tells AS integer) = 1"))
    assert life.requests > 0
    assert {"ask", "take", "end", "operate"} == done
    await app.close()
