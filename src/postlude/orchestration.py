"""The sagas of one database, wired: the service, a destination for each, what comes through the inbox, and the duty."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any

import msgspec

from postlude.declared import Declared
from postlude.outbox.outbox import Handles, Outbox
from postlude.ports.destination import Destination
from postlude.ports.store import Store
from postlude.runtime.duties.duty import Duty
from postlude.runtime.duties.stalls import Stalls
from postlude.runtime.lending import LendingParts
from postlude.runtime.saga.deciding import SagaParts
from postlude.runtime.saga.destination import SagaDestination
from postlude.runtime.saga.steps import Steps
from postlude.runtime.telling import Telling
from postlude.saga.applying import Applying, Stuck
from postlude.saga.service import SagaService, ServiceParts
from postlude.saga.times import Times

STALL_INTERVAL = 60.0
STALLED_AFTER = 300.0
"""Seconds without a change and with nothing on its way."""


class Sides(msgspec.Struct, frozen=True):
    """What an engine gives; asked for when it is needed."""

    store: Callable[[], Store]
    outbox: Callable[[], Outbox]
    handles: Callable[[], Handles]
    start: Callable[[], Awaitable[None]]
    open: Callable[[], AbstractAsyncContextManager[Any]]


class Orchestration:
    def __init__(self, declared: Declared, sides: Sides) -> None:
        self._declared = declared
        self._sides = sides
        self._telling: Telling[Stuck] = Telling("stuck saga", declared.stuck_hooks, lambda stuck: stuck.saga_id)
        self.service = SagaService(declared.sagas, self._service_parts, declared.stuck_hooks)

    def check(self) -> None:
        self._declared.sagas.check()

    def destinations(self, lending: LendingParts, *, lanes: int) -> list[Destination]:
        store, settings = self._sides.store(), self._declared.settings
        parts = SagaParts(
            lending=lending,
            applying=self._applying,
            sagas=store.sagas,
            settling=store.settling,
            policy=self._declared.routes.policy,
            told=self._told,
            learn_time=lambda: self._applying.times.learn(store.records.now),
        )
        on_sqlite, concurrency = store.dialect == "sqlite", settings.handler.concurrency
        found: list[Destination] = []
        for made in self._declared.sagas:
            steps = Steps(made, self._declared.sagas, settings.handler.timeout)
            # SQLite has one writer: steps in transactions wait for each other anyway.
            parallel = 1 if on_sqlite and any(callee.transactional for callee in steps.callees()) else concurrency
            found.append(SagaDestination(made, steps, parts, lanes=lanes, parallel=parallel))
        return found

    def duties(self) -> list[Duty]:
        if not list(self._declared.sagas):
            return []
        store = self._sides.store()
        return [
            Stalls(
                store.upkeep,
                store.sagas,
                self._declared.sagas,
                older_than=STALLED_AFTER,
                interval=STALL_INTERVAL,
            )
        ]

    def close(self) -> None:
        self._telling.close()

    @cached_property
    def _applying(self) -> Applying:
        sides = self._sides
        times = Times(lambda: self._declared.clock)
        return Applying(sides.store().saga_scripts, sides.outbox(), sides.handles(), times)

    def _service_parts(self) -> ServiceParts:
        store = self._sides.store()
        return ServiceParts(self._applying, store.sagas, self._sides.open, self._sides.start, self._told)

    def _told(self, stuck: list[Stuck]) -> None:
        for one in stuck:
            self._telling.tell(one)
