"""The consumers of one database, wired: who takes from which broker, and where what it cannot read waits."""

from __future__ import annotations

from datetime import timedelta

from postlude.declared import Declared
from postlude.inbox.accepting import Accepting, AcceptingParts
from postlude.inbox.consumers import Consumer, Interest, consumers_of, interests_of
from postlude.inbox.interpreting import Interpreting, InterpretingParts
from postlude.outbox.prepare import Preparing
from postlude.ports.destination import Destination
from postlude.ports.receiving import Receiving
from postlude.runtime.consuming import Consuming, ConsumingOptions
from postlude.runtime.opening import Open
from postlude.runtime.rereading import RereadingDestination


def all_interests(declared: Declared) -> list[Interest]:
    """Of handlers that name a consumer, and of sagas whose participants reply."""
    replies = (Interest(source, spec, destination) for source, spec, destination in declared.sagas.sources())
    return [*interests_of(declared.routes.handlers.values()), *replies]


class Consumption:
    def __init__(
        self, declared: Declared, receiving: Receiving, parts: AcceptingParts, preparing: Preparing, open: Open
    ) -> None:
        self._declared = declared
        self._receiving = receiving
        self._parts = parts
        self._open = open
        limit = declared.settings.payload.max_bytes
        shared = InterpretingParts(parts.installed, preparing, declared.foreign, limit)
        self._accepting = [self._accepting_of(consumer, shared) for consumer in consumers_of(all_interests(declared))]

    def consumers(self) -> list[Consuming]:
        return [self._consuming(accepting) for accepting in self._accepting]

    def destinations(self) -> list[Destination]:
        lanes = self._parts.installed.lanes
        return [RereadingDestination(accepting, self._open, lanes=lanes) for accepting in self._accepting]

    def _accepting_of(self, consumer: Consumer, shared: InterpretingParts) -> Accepting:
        settings = self._declared.settings
        told = settings.consumer.named(settings.consumers.get(consumer.name))
        return Accepting(consumer, Interpreting(consumer, shared, told.unknown), self._parts)

    def _consuming(self, accepting: Accepting) -> Consuming:
        settings, consumer = self._declared.settings, accepting.consumer
        own = settings.consumers.get(consumer.name)
        told = settings.consumer.named(own)
        hours = settings.inbox.retention_hours
        options = ConsumingOptions(
            group=(own.group if own else None) or consumer.name,
            start=told.start,
            batch=told.batch_size,
            max_open=told.max_open,
            remembered=timedelta(hours=hours) if hours else None,
        )
        broker = self._declared.broker(consumer.broker)
        return Consuming(accepting, broker, self._receiving, self._declared.clock, options)
