"""Outages: a server that is killed, restarted or hangs, and a member that is killed."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from postlude.core.outcome import SENT
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Broker
from postlude.testing.contracts.broker_arrange import (
    SHORT,
    BrokerUnderTest,
    Server,
    arrives,
    attempt,
    freezes,
    ids,
    joined,
    message,
    needs,
    numbered,
    received,
    restarts,
    sent,
    sent_in_the_end,
    within,
)

Connect = Callable[..., Awaitable[Broker]]


class BrokerFaults(BrokerUnderTest):
    """Scenarios for servers that the suite can break."""

    @needs(restarts)
    async def test_publishing_in_an_outage(self, server: Server, connect: Connect, topic: str, group: str) -> None:
        broker = await connect(timeout=SHORT)
        await self.declare(broker, topic, group)
        await sent_in_the_end(broker, [message(topic, "k", b"0")], self.patience)
        batch = numbered(topic, 20, key="k", first=1)
        server.kill()
        async with within(SHORT):
            assert await attempt(broker, batch) == [None] * 20
            assert await attempt(broker, batch) == [None] * 20
        server.start()
        await sent_in_the_end(broker, batch, self.patience)
        async with joined(broker, topic, group) as member:
            await arrives(member, batch, self.patience)

    @needs(restarts)
    async def test_opening_in_an_outage(self, server: Server, make_broker: Any, topic: str, group: str) -> None:
        broker: Broker = make_broker(timeout=SHORT)
        server.kill()
        try:
            async with within(SHORT):
                with contextlib.suppress(BrokerUnavailable):
                    await broker.open()
                assert await attempt(broker, [message(topic)]) == [None]
            server.start()
            await self.declare(broker, topic, group)
            await sent_in_the_end(broker, [message(topic)], self.patience)
        finally:
            await broker.close()

    @needs(restarts)
    async def test_publishing_goes_on_after_a_restart(
        self, server: Server, broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        await sent(broker, [message(topic)])
        server.stop()
        server.start()
        await sent_in_the_end(broker, numbered(topic, 20), self.patience)

    @needs(restarts)
    async def test_receiving_goes_on_after_a_restart(
        self, server: Server, broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        await sent(broker, numbered(topic, 5, key="k"))
        async with joined(broker, topic, group) as member:
            before = await received(member, 5, self.patience)
            server.kill()
            async with within(5):
                for step in (member.receive(10, 0.5), member.ack(before[:1]), member.nack(before[1:], 0), member.lag()):
                    with contextlib.suppress(BrokerUnavailable):
                        await step
            server.start()
            await sent_in_the_end(broker, batch := numbered(topic, 20, key="k"), self.patience)
            await arrives(member, batch, self.patience)

    @needs(restarts)
    @needs(lambda contract: contract.features.persistent)
    async def test_what_was_confirmed_survives_a_kill(
        self, server: Server, connect: Connect, topic: str, group: str
    ) -> None:
        broker = await connect()
        await self.declare(broker, topic, group)
        batch = [message(topic, f"key-{number}") for number in range(200)]
        await sent(broker, batch)
        server.kill()
        server.start()
        async with joined(await connect(), topic, group) as member:
            come = await received(member, 200, self.patience, ack=True)
        assert set(ids(come)) == set(ids(batch))

    @needs(freezes)
    async def test_a_broker_that_hangs(self, server: Server, connect: Connect, topic: str, group: str) -> None:
        broker = await connect(timeout=SHORT)
        await self.declare(broker, topic, group)
        await sent_in_the_end(broker, [message(topic, "k", b"0")], self.patience)
        batch = numbered(topic, 20, key="k", first=1)
        async with joined(broker, topic, group) as member:
            await received(member, 1, self.patience, ack=True)
            server.freeze()
            async with within(SHORT):
                assert await attempt(broker, batch) == [None] * 20
            async with within(SHORT):
                with contextlib.suppress(BrokerUnavailable):
                    assert await member.receive(10, 0.2) == []
            server.thaw()
            await sent_in_the_end(broker, batch, self.patience)
            await arrives(member, batch, self.patience)

    @needs(freezes)
    async def test_closing_a_broker_that_hangs(self, server: Server, connect: Connect, topic: str, group: str) -> None:
        broker = await connect(timeout=SHORT)
        await self.declare(broker, topic, group)
        await sent_in_the_end(broker, [message(topic)], self.patience)
        async with joined(broker, topic, group) as member:
            await received(member, 1, self.patience, ack=True)
            server.freeze()
            async with within(SHORT):
                publishing = asyncio.create_task(attempt(broker, numbered(topic, 5)))
                await asyncio.sleep(0)
                await broker.close()
                assert await publishing == [None] * 5

    @needs(freezes)
    async def test_a_confirm_that_is_slow(self, server: Server, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        await sent(broker, [message(topic)])
        server.freeze()
        publishing = asyncio.create_task(broker.publish(numbered(topic, 20)))
        done, _ = await asyncio.wait([publishing], timeout=0.5)
        assert not done
        server.thaw()
        async with within(self.patience):
            assert await publishing == [SENT] * 20

    @needs(lambda contract: "process" in contract.abilities and contract.features.redelivers)
    async def test_a_killed_member_is_replaced(
        self, broker_server: Any, broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        batch = numbered(topic, 10, key="k")
        await sent(broker, batch)
        given = {"url": broker_server.url, "options": self.member_options, "topic": topic, "group": group, "count": 10}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "postlude.testing.contracts.broker_member",
            json.dumps(given),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(self.patience):
                said = await process.stdout.readline()
            assert json.loads(said) == ids(batch)
        finally:
            process.kill()
            await process.communicate()
        async with joined(broker, topic, group) as member:
            again = await received(member, 10, self.patience, ack=True)
        assert ids(again) == ids(batch)
