"""The memory broker passes the broker contract."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

import pytest

from postlude.brokers.memory import MemoryBroker
from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import Fault, Outcome, Rejected
from postlude.errors import BrokerUnavailable
from postlude.testing.contracts.broker import BrokerContract
from postlude.testing.contracts.broker_arrange import Ability, joined, message, sent

LIMIT = 200_000


class Switch:
    """What kills a broker that has no process of its own."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.fate = _fate

    def start(self) -> None:
        self.broker.is_down = False

    def kill(self) -> None:
        self.broker.is_down = True

    stop = kill
    freeze = thaw = start


def _fate(message: BrokerMessage) -> Outcome | None:
    is_refused = len(message.payload) >= LIMIT or message.topic == "nowhere"
    return Rejected(Fault("Refused")) if is_refused else None


class TestMemoryBroker(BrokerContract):
    features = MemoryBroker.features
    abilities: ClassVar[frozenset[Ability]] = frozenset({"restart"})
    too_large = LIMIT
    has_dead_end = True
    has_foreign = True

    @pytest.fixture
    def broker_server(self):
        return Switch()

    @pytest.fixture
    def make_broker(self, broker_server):
        return lambda **options: broker_server.broker  # there is only this process to connect to

    async def dead_end(self, broker):
        return "nowhere"

    async def put_foreign(self, server, topic, payload):
        await server.broker.publish([BrokerMessage(uuid4(), topic, None, payload, {})])

    async def test_a_nack_waits(self, broker, topic, group):
        await sent(broker, [message(topic)])
        async with joined(broker, topic, group) as member:
            come = await member.receive(10, 1)
            await member.nack(come, 3600)
            assert await member.receive(10, 0) == []
            assert await member.lag() == 1

    async def test_a_member_is_told_that_it_is_down(self, broker, topic, group):
        async with joined(broker, topic, group) as member:
            broker.is_down = True
            with pytest.raises(BrokerUnavailable):
                await member.receive(10, 1)
