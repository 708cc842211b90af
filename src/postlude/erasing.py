"""Calls and erasure of one database, wired: the service, a destination for each resolver, the hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from postlude.calls.resolvers import OWN, Registered
from postlude.declared import Declared
from postlude.erasure.service import ErasureParts, ErasureService
from postlude.outbox.outbox import Handles
from postlude.outbox.prepare import Preparing
from postlude.ports.destination import Destination
from postlude.ports.store import Store
from postlude.privacy.own_tables import OwnTables
from postlude.privacy.redacting import Redacting, RedactingParts
from postlude.privacy.secrets import OpenedCalls, Vault
from postlude.runtime.call_ends import CallParts
from postlude.runtime.calls import CallDestination
from postlude.runtime.erasure import Abandonments
from postlude.runtime.lending import Lending, LendingParts
from postlude.runtime.transactions import transactions_of

OWN_TIMEOUT, OWN_CONCURRENCY = 300.0, 2
"""Of the calls that redact our own tables: many pages take long, and nobody waits for them."""


class Sides(msgspec.Struct, frozen=True):
    """What an engine gives; asked for when it is needed."""

    store: Callable[[], Store]
    handles: Callable[[], Handles]
    preparing: Callable[[], Preparing]
    join: Callable[[Any], Awaitable[Preparing]]
    start: Callable[[], Awaitable[None]]
    appended: Callable[[], None]


class Erasing:
    def __init__(self, declared: Declared, sides: Sides) -> None:
        self._declared = declared
        self._sides = sides
        self.vault = Vault(declared.keys)
        self.abandonments = Abandonments(declared.call_hooks, self._calls)
        self.redacting = Redacting(self._redacting_parts, sides.start)
        self._own = self._own_tables()
        if declared.resolvers.get(OWN) is None:  # one name for all databases; each has its own behind it
            declared.resolvers.add(self._own)
        self.service = ErasureService(declared.resolvers, self._service_parts, declared.call_hooks, sides.start)

    def destinations(self, lending: LendingParts, *, lanes: int) -> list[Destination]:
        store = self._sides.store()
        # Bookkeeping only, in transactions of our own: whatever factory handlers were given is not needed.
        ours = msgspec.structs.replace(lending, transactions=transactions_of(None, store.transaction))
        parts = CallParts(
            calls=self._calls(),
            call_scripts=store.call_scripts,
            scripts=store.scripts,
            seal=self.vault.seal,
            lending=lambda name, destination: Lending(name, destination, ours),
            clock=self._declared.clock,
            first_delay=self._declared.resolvers.retry.delay(1, chance=0.5).total_seconds(),
            budget=self._declared.resolvers.retry.max_attempts,
        )
        resolvers = [self._own if one.name == OWN else one for one in self._declared.resolvers]
        return [CallDestination(one, parts, lanes=lanes) for one in resolvers]

    def _calls(self) -> OpenedCalls:
        return OpenedCalls(self._sides.store().calls, self.vault)

    def _own_tables(self) -> Registered:
        async def now() -> datetime:
            return await self._sides.store().records.now()

        resolver = OwnTables(self.redacting, self._declared.settings.erasure.pending, now)
        return Registered(resolver, timeout=OWN_TIMEOUT, concurrency=OWN_CONCURRENCY, rate=None)

    def _redacting_parts(self) -> RedactingParts:
        store = self._sides.store()
        return RedactingParts(
            scripts=store.redaction_scripts,
            handles=self._sides.handles(),
            pseudonym_key=store.calls.pseudonym_key,
            transaction=store.transaction,
        )

    def _service_parts(self) -> ErasureParts:
        store = self._sides.store()
        return ErasureParts(
            handles=self._sides.handles(),
            scripts=store.scripts,
            call_scripts=store.call_scripts,
            calls=self._calls(),
            join=self._sides.join,
            preparing=self._sides.preparing(),
            routes=self._declared.routes,
            appended=self._sides.appended,
            deadline_days=self._declared.settings.erasure.deadline_days,
            seal=self.vault.seal,
        )
