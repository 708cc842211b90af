"""What the contract tests of brokers set up: a server to break, messages, and which scenario needs what."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Literal, Protocol, TypeVar
from uuid import uuid4

import pytest

from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import SENT, Outcome, Unavailable
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Broker, BrokerFeatures, Received, Start, Subscription

Scenario = TypeVar("Scenario", bound=Callable[..., Any])
Ability = Literal["restart", "freeze", "process"]
SHORT = 2.0
"""Seconds that a broker gets as its own timeout where a scenario waits for it."""


class Server(Protocol):
    """The broker's server, at one address. Each of these is harmless where there is nothing to do."""

    def start(self) -> None:
        """Up again, with the data it had; returns when it takes connections."""

    def stop(self) -> None:
        """In order."""

    def kill(self) -> None:
        """SIGKILL, at once."""

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""

    def thaw(self) -> None: ...


class Making(Protocol):
    """Makes a broker that is not opened yet. `timeout` is the adapter's own, for publishing and connecting."""

    def __call__(self, **options: Any) -> Broker: ...


def needs(condition: Callable[[type[BrokerUnderTest]], bool]) -> Callable[[Scenario], Scenario]:
    """The scenario is only for brokers of which that is true; for others it is not collected."""

    def mark(scenario: Scenario) -> Scenario:
        conditions = [*getattr(scenario, "needs", ()), condition]
        setattr(scenario, "needs", conditions)  # noqa: B010 - functions have no such attribute until now
        return scenario

    return mark


def restarts(contract: type[BrokerUnderTest]) -> bool:
    return "restart" in contract.abilities


def freezes(contract: type[BrokerUnderTest]) -> bool:
    return "freeze" in contract.abilities


class BrokerUnderTest:
    """What every scenario stands on. The subclass gives what `BrokerContract` says."""

    features: ClassVar[BrokerFeatures]
    abilities: ClassVar[frozenset[Ability]] = frozenset()
    too_large: ClassVar[int | None] = None
    keeps_history: ClassVar[bool] = True
    tells_lag: ClassVar[bool] = True
    has_dead_end: ClassVar[bool] = False
    has_foreign: ClassVar[bool] = False
    patience: ClassVar[float] = 60.0
    member_options: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if getattr(cls, "features", None) is None:
            return
        for name in dir(cls):
            conditions = getattr(getattr(cls, name), "needs", ()) if name.startswith("test_") else ()
            if not all(condition(cls) for condition in conditions):
                setattr(cls, name, None)  # pytest passes over what it cannot call

    @classmethod
    def scenarios(cls) -> list[str]:
        """Those that are collected."""
        return sorted(name for name in dir(cls) if name.startswith("test_") and getattr(cls, name) is not None)

    async def declare(self, broker: Broker, topic: str, *groups: str) -> None:
        """Whatever must be there before the first message of a topic is published, so that these groups get it."""

    async def dead_end(self, broker: Broker) -> str:
        """A topic that the broker refuses messages for, whatever is in them."""
        raise NotImplementedError

    async def put_foreign(self, server: Any, topic: str, payload: bytes) -> None:
        """Put a message there as another program would: no headers, and a binary key where there are keys."""
        raise NotImplementedError

    @pytest.fixture
    def server(self, broker_server: Server) -> Iterator[Server]:
        """Whatever a scenario does to it, the next one finds it well."""
        yield broker_server
        self._heal(broker_server)

    @pytest.fixture
    async def connect(self, server: Server, make_broker: Making) -> AsyncIterator[Callable[..., Awaitable[Broker]]]:
        """Opened brokers, closed at the end, when the server is well again."""
        opened: list[Broker] = []

        async def connect(**options: Any) -> Broker:
            broker = make_broker(**options)
            opened.append(broker)
            await broker.open()
            return broker

        yield connect
        self._heal(server)
        for broker in opened:
            await broker.close()

    @pytest.fixture
    async def broker(self, connect: Callable[..., Awaitable[Broker]]) -> Broker:
        return await connect()

    def _heal(self, server: Server) -> None:
        if "freeze" in self.abilities:
            server.thaw()
        if "restart" in self.abilities:
            server.start()

    @pytest.fixture
    def topic(self) -> str:
        """One that nobody has used."""
        return f"topic-{uuid4().hex[:12]}"

    @pytest.fixture
    def group(self) -> str:
        return f"group-{uuid4().hex[:12]}"


def message(
    topic: str, key: str | None = None, payload: bytes = b"{}", *, headers: Mapping[str, str] | None = None
) -> BrokerMessage:
    """As a relay would make one. `ce_id` tells it apart from others when it arrives."""
    id = uuid4()
    given = {"content-type": "application/json", "ce_id": str(id), **(headers or {})}
    return BrokerMessage(id, topic, key, payload, given)


def numbered(topic: str, count: int, *, key: str | None = None, first: int = 0) -> list[BrokerMessage]:
    """Payloads that count up."""
    return [message(topic, key, str(number).encode()) for number in range(first, first + count)]


def ids(messages: Sequence[BrokerMessage | Received]) -> list[str]:
    return [one.headers["ce_id"] for one in messages]


async def sent(broker: Broker, messages: Sequence[BrokerMessage]) -> None:
    """Published and confirmed, at once."""
    assert await broker.publish(messages) == [SENT] * len(messages)  # noqa: S101 - a test's own premise


async def attempt(broker: Broker, messages: Sequence[BrokerMessage]) -> list[Outcome | None]:
    """One outcome a message; None where all that is known is that the broker was not available."""
    try:
        return [None if isinstance(one, Unavailable) else one for one in await broker.publish(messages)]
    except BrokerUnavailable:
        return [None] * len(messages)


async def sent_in_the_end(broker: Broker, messages: Sequence[BrokerMessage], patience: float) -> None:
    """As the relay does it: what was not confirmed is published again, in order."""
    left, deadline = list(messages), time.monotonic() + patience
    while left:
        outcomes = await attempt(broker, left)
        left = [one for one, outcome in zip(left, outcomes, strict=True) if outcome != SENT]
        assert not left or time.monotonic() < deadline, f"{len(left)} messages were not sent: {outcomes[:3]}"  # noqa: S101
        if left:
            await asyncio.sleep(0.05)


async def some(subscription: Subscription, limit: int, timeout: float = 0.2) -> list[Received]:
    """One receive; a broker that is not available gives nothing."""
    try:
        return await subscription.receive(limit, timeout)
    except BrokerUnavailable:
        await asyncio.sleep(0.05)
        return []


async def received(
    subscription: Subscription, count: int, patience: float, *, ack: bool = False, limit: int = 500
) -> list[Received]:
    """Receive until that many different ones have come, through outages; what comes twice is kept once."""
    found: dict[str, Received] = {}
    deadline = time.monotonic() + patience
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came within {patience:g} s"  # noqa: S101
        come = await some(subscription, limit)
        for one in come:
            found.setdefault(one.headers["ce_id"], one)
        if ack and come:
            await subscription.ack(come)
    return list(found.values())


async def arrives(subscription: Subscription, wanted: Sequence[BrokerMessage], patience: float) -> None:
    """Receive and acknowledge until all of these have come, whatever else comes."""
    left, deadline = set(ids(wanted)), time.monotonic() + patience
    while left:
        assert time.monotonic() < deadline, f"{len(left)} of {len(wanted)} messages did not come"  # noqa: S101
        come = await some(subscription, 500)
        left -= {one.headers["ce_id"] for one in come}
        with contextlib.suppress(BrokerUnavailable):
            await subscription.ack(come)


async def eventually(condition: Callable[[], Awaitable[bool]], patience: float, what: str) -> None:
    deadline = time.monotonic() + patience
    while not await condition():
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what}"  # noqa: S101
        await asyncio.sleep(0.02)


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """The block ends by itself in that time. A loaded machine is given more; waiting for ever is still found."""
    async with asyncio.timeout(seconds * 2 + 10):
        yield


def joined(
    broker: Broker, topic: str, group: str, start: Start = "earliest", prefetch: int = 500
) -> AbstractAsyncContextManager[Subscription]:
    return broker.subscribe([topic], group, start=start, prefetch=prefetch)
