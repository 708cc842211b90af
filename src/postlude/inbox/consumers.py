"""Consumers: who takes which topics of which broker, and who is to be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from postlude.core.event import EventSpec
from postlude.errors import ConfigurationError
from postlude.outbox.handlers import Handler, Source

PREFIX = "consumer:"


class Interest(msgspec.Struct, frozen=True):
    """A destination that wants the events of a type from a topic."""

    source: Source
    spec: EventSpec
    destination: str


class Consumer(msgspec.Struct, frozen=True):
    """A member of the broker's group of that name takes its topics, in every process that serves it."""

    name: str
    broker: str
    interests: Sequence[Interest]

    @property
    def destination(self) -> str:
        """Where messages wait that nobody could read."""
        return PREFIX + self.name

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(interest.source.topic for interest in self.interests))

    @property
    def destinations(self) -> list[str]:
        """Everywhere its messages go."""
        return [*dict.fromkeys(interest.destination for interest in self.interests), self.destination]

    def wanting(self, topic: str, event_type: str) -> list[Interest]:
        """A topic with a wildcard stands for many: what came from none that is named is for every handler of its type."""
        is_named = topic in self.topics
        return [
            interest
            for interest in self.interests
            if interest.spec.type == event_type and (interest.source.topic == topic or not is_named)
        ]


def interests_of(handlers: Iterable[Handler]) -> list[Interest]:
    """Of the handlers whose events come from a broker."""
    return [Interest(one.source, one.spec, one.destination) for one in handlers if one.source is not None]


def consumers_of(interests: Iterable[Interest]) -> list[Consumer]:
    """One for each name."""
    found: dict[str, list[Interest]] = {}
    for interest in interests:
        found.setdefault(interest.source.consumer, []).append(interest)
    return [_consumer(name, mine) for name, mine in found.items()]


def destinations_of(interests: Iterable[Interest]) -> dict[str, list[str]]:
    """By consumer, everywhere its messages go."""
    return {consumer.name: consumer.destinations for consumer in consumers_of(interests)}


def _consumer(name: str, interests: Sequence[Interest]) -> Consumer:
    brokers = sorted({interest.source.broker for interest in interests})
    if len(brokers) > 1:
        raise ConfigurationError(
            f"the consumer {name} takes from several brokers: {', '.join(brokers)}",
            hint="Give each broker a consumer of its own.",
        )
    return Consumer(name, brokers[0], tuple(interests))
