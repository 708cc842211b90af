"""Taking messages in: inbox, events, deliveries and counts in one transaction, whatever the messages are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postlude.core.sqlstate import is_outage, sqlstate_of
from postlude.errors import (
    ConnectionClosed,
    DatabaseUnavailable,
    IdConflict,
    KeysUnavailable,
    PostludeError,
    Unreadable,
)
from postlude.inbox.consumers import Consumer
from postlude.inbox.interpreting import Interpreting, Position
from postlude.inbox.unreadable import as_it_came
from postlude.outbox.installed import Installed
from postlude.outbox.outbox import Handles
from postlude.ports.append import Prepared
from postlude.ports.broker import Received
from postlude.ports.receiving import Taken
from postlude.ports.scripts import Scripts

SERIALISATION = ("40001", "40P01")
TRIES = 5


class AcceptingParts(msgspec.Struct, frozen=True):
    """What the consumers of a database share."""

    installed: Installed
    scripts: Scripts
    handles: Handles
    transaction: Callable[[], AbstractAsyncContextManager[Any]]
    seal: Callable[[Any, Sequence[Prepared]], Awaitable[Sequence[Prepared]]]
    """On a handle: as events are to be stored."""


class Accepting:
    """Of one consumer."""

    def __init__(self, consumer: Consumer, interpreting: Interpreting, parts: AcceptingParts) -> None:
        self.consumer = consumer
        self._interpreting = interpreting
        self._parts = parts

    async def accept(self, received: Sequence[Received], position: Position, oldest: datetime | None) -> int:
        """They are safe with us when this returns. Gives how many were new. Raises only DatabaseUnavailable.

        What the database refuses for a reason of its own is looked for one by one, and kept as it came.
        """
        try:
            return await self._accept(received, position, oldest)
        except DatabaseUnavailable:
            raise
        except KeysUnavailable as error:
            raise DatabaseUnavailable(str(error.args[0]), hint=error.hint) from error  # it is tried again just so
        except Exception as error:
            if is_outage(error) or isinstance(error, ConnectionClosed):
                raise DatabaseUnavailable(f"the database went away ({type(error).__name__})") from error
            # Whatever it is, one of them causes it, and the others go on.
            if len(received) == 1:
                return await self._keep(received[0], position, error)
        return sum([await self.accept([one], position, oldest) for one in received])

    async def take(self, received: Received, position: Position) -> None:
        """One again, that could not be taken before; raises a PostludeError when it still cannot."""
        prepared = self._interpreting.one(received, position, None)
        if prepared is not None:
            await self._write(Taken(consumer=self.consumer.name, events=[prepared]))

    async def _accept(self, received: Sequence[Received], position: Position, oldest: datetime | None) -> int:
        refused: frozenset[UUID] = frozenset()
        while True:
            batch = _Batch(self.consumer, position, self._parts.installed.lanes, refused)
            for one in received:
                try:
                    batch.put(one, self._interpreting.one(one, position, oldest))
                except PostludeError as error:
                    batch.keep(one, error)
            try:
                return len(await self._write(batch.taken()))
            except IdConflict as error:
                if error.ids <= refused:
                    raise
                refused |= error.ids

    async def _keep(self, received: Received, position: Position, error: Exception) -> int:
        unreadable = Unreadable(f"the database refuses the message: {type(error).__name__}")
        event = as_it_came(received, position(received), self.consumer, unreadable, self._parts.installed.lanes)
        return len(
            await self._write(
                Taken(consumer=self.consumer.name, events=[event], unreadable=frozenset([event.event_id]))
            )
        )

    async def _write(self, taken: Taken) -> set[UUID]:
        for _ in range(TRIES):
            try:
                async with self._parts.transaction() as handle:
                    sealed = msgspec.structs.replace(taken, events=await self._parts.seal(handle, taken.events))
                    return await self._parts.handles.adapter(handle).play(handle, self._parts.scripts.receive(sealed))
            except Exception as error:
                if sqlstate_of(error) not in SERIALISATION:
                    raise
        raise DatabaseUnavailable("others keep writing what a consumer received", hint="It is tried again.")


class _Batch:
    """Messages of one go, each event once."""

    def __init__(self, consumer: Consumer, position: Position, lanes: int, refused: frozenset[UUID]) -> None:
        self._consumer = consumer
        self._position = position
        self._lanes = lanes
        self._refused = refused
        self._events: dict[UUID, Prepared] = {}
        self._unreadable: set[UUID] = set()
        self._duplicates = self._ignored = 0

    def put(self, received: Received, prepared: Prepared | None) -> None:
        if prepared is None:
            self._ignored += 1
        elif prepared.event_id in self._refused or self._is_other(prepared):
            self.keep(received, IdConflict(f"another event has the id {prepared.event_id}"))
        elif prepared.event_id in self._events:
            self._duplicates += 1
        else:
            self._events[prepared.event_id] = prepared

    def keep(self, received: Received, error: PostludeError) -> None:
        event = as_it_came(received, self._position(received), self._consumer, error, self._lanes)
        if event.event_id in self._events:
            self._duplicates += 1
        else:
            self._events[event.event_id] = event
            self._unreadable.add(event.event_id)

    def taken(self) -> Taken:
        return Taken(
            consumer=self._consumer.name,
            events=list(self._events.values()),
            duplicates=self._duplicates,
            ignored=self._ignored,
            unreadable=frozenset(self._unreadable),
        )

    def _is_other(self, prepared: Prepared) -> bool:
        known = self._events.get(prepared.event_id)
        return known is not None and known.digest != prepared.digest
