"""The deliveries of one database, wired: a destination for its routes, for each broker and for each handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property, partial

import msgspec

from postlude.declared import Declared
from postlude.outbox.outbox import Handles, Outbox
from postlude.ports.destination import Destination
from postlude.ports.store import Store
from postlude.privacy.sealer import Sealer
from postlude.runtime.handling import HandlerDestination
from postlude.runtime.lending import LendingParts
from postlude.runtime.publishing import BrokerDestination
from postlude.runtime.routing import RouteDestination
from postlude.runtime.threads import Threads
from postlude.runtime.transactions import TransactionFactory, Transactions, transactions_of

SPARE_CONNECTIONS = 3
"""Of the pool, that handlers never take: however long they hang, other destinations and appends go on."""


class Sides(msgspec.Struct, frozen=True):
    """What an engine gives; asked for when it is needed."""

    store: Callable[[], Store]
    outbox: Callable[[], Outbox]
    handles: Callable[[], Handles]
    sealer: Sealer
    consumes: bool


class Delivering:
    def __init__(self, declared: Declared, sides: Sides, factory: TransactionFactory | None) -> None:
        self._declared = declared
        self._sides = sides
        self._factory = factory

    def destinations(self, lending: LendingParts, *, lanes: int) -> list[Destination]:
        """Routes first: they make the deliveries of the others."""
        resolve = partial(self._declared.routes.resolve_stored, lanes=lanes)
        batch = self._declared.settings.relay.batch_size
        return [
            RouteDestination(self._sides.store().settling, resolve, batch=batch),
            *(self._broker(name, lanes) for name in sorted(self._declared.routes.brokers())),
            *self._handlers(lending, lanes),
        ]

    def lending(self) -> LendingParts:
        """What everything that is called in this process shares."""
        store, settings = self._sides.store(), self._declared.settings
        on_sqlite = store.dialect == "sqlite"
        keep = settings.errors.keep or ("message" if on_sqlite else "location")
        return LendingParts(
            outbox=self._sides.outbox(),
            scripts=store.scripts,
            settling=store.settling,
            handles=self._sides.handles(),
            transactions=self._transactions,
            story=store.records.story,
            abandon=store.abandon,
            threads=self._threads,
            open=self._sides.sealer.open,
            keep_messages=keep == "message",
            transaction_limit=settings.handler.sqlite_limit if on_sqlite else None,
            places=None if on_sqlite or self._factory is not None else self._places,
        )

    def close(self) -> None:
        """Threads and places belong to an event loop: the next one makes its own."""
        if (threads := self.__dict__.pop("_threads", None)) is not None:
            threads.close()
        self.__dict__.pop("_places", None)

    def _broker(self, name: str, lanes: int) -> Destination:
        routes, settings = self._declared.routes, self._declared.settings
        is_wanted = routes.opens(name)
        return BrokerDestination(
            name,
            self._declared.broker(name),
            lanes=lanes,
            batch=settings.relay.batch_size,
            topic=routes.topic(name),
            mode=settings.broker_mode(name),
            open=None if is_wanted is None else (self._sides.sealer.open, is_wanted),
        )

    def _handlers(self, lending: LendingParts, lanes: int) -> list[Destination]:
        on_sqlite, concurrency = self._sides.store().dialect == "sqlite", self._declared.settings.handler.concurrency
        return [
            # SQLite has one writer: handlers in transactions wait for each other anyway.
            HandlerDestination(
                one, lending, lanes=lanes, parallel=1 if on_sqlite and one.transactional else concurrency
            )
            for one in self._declared.routes.own_handlers
            if one.source is None or self._sides.consumes
        ]

    @cached_property
    def _transactions(self) -> Transactions:
        return transactions_of(self._factory, self._sides.store().transaction)

    @cached_property
    def _places(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(max(1, self._declared.settings.pool.max - SPARE_CONNECTIONS))

    @cached_property
    def _threads(self) -> Threads:
        return Threads(self._declared.settings.handler.threads)
