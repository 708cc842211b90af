"""Receiving: groups, acknowledging, what comes again, back-pressure, lag."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from postlude.ports.broker import Broker
from postlude.testing.contracts.broker_arrange import (
    BrokerUnderTest,
    Server,
    eventually,
    ids,
    joined,
    message,
    needs,
    numbered,
    received,
    sent,
    some,
    within,
)


class BrokerReceiving(BrokerUnderTest):
    """Scenarios of a server that is well."""

    async def test_nothing_there_is_an_empty_list_in_time(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        async with joined(broker, topic, group) as member, within(0.2):
            assert await member.receive(10, 0.2) == []
            assert await member.receive(10, 0) == []
            await member.ack([])
            await member.nack([], 0)

    @needs(lambda contract: contract.features.groups)
    async def test_every_group_gets_everything(self, broker: Broker, topic: str, group: str) -> None:
        groups = (f"{group}-1", f"{group}-2")
        await self.declare(broker, topic, *groups)
        batch = numbered(topic, 30)
        await sent(broker, batch)
        async with joined(broker, topic, groups[0]) as one, joined(broker, topic, groups[1]) as other:
            for member in (one, other):
                come = await received(member, 30, self.patience, ack=True)
                assert set(ids(come)) == set(ids(batch))

    @needs(lambda contract: contract.features.groups)
    async def test_members_share_what_comes(
        self, connect: Callable[..., Awaitable[Broker]], broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        second = await connect()
        published: set[str] = set()
        shares: list[list[str]] = [[], []]
        async with joined(broker, topic, group) as one, joined(second, topic, group) as other:

            async def take() -> None:
                for share, member in zip(shares, (one, other), strict=True):
                    come = await some(member, 5)
                    share.extend(ids(come))
                    await member.ack(come)

            async def both_have_some() -> bool:
                batch = [message(topic, f"key-{len(published)}-{number}") for number in range(20)]
                await sent(broker, batch)
                published.update(ids(batch))
                await take()
                return all(shares)

            async def all_came() -> bool:
                await take()
                return set(shares[0]) | set(shares[1]) == published

            await eventually(both_have_some, self.patience, "both members get something")
            await eventually(all_came, self.patience, "the group gets everything")

    async def test_a_member_takes_several_topics(self, broker: Broker, topic: str, group: str) -> None:
        topics = [f"{topic}-{number}" for number in range(3)]
        for each in topics:
            await self.declare(broker, each, group)
        batch = [message(each, "k") for each in topics for _ in range(5)]
        await sent(broker, batch)
        async with broker.subscribe(topics, group) as member:
            come = await received(member, 15, self.patience, ack=True)
        assert {(one.topic, one.headers["ce_id"]) for one in come} == {(one.topic, str(one.id)) for one in batch}

    async def test_what_is_acknowledged_never_comes_again(
        self, connect: Callable[..., Awaitable[Broker]], broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        await sent(broker, numbered(topic, 10, key="k"))
        async with joined(await connect(), topic, group) as member:
            await received(member, 10, self.patience, ack=True)
        await sent(broker, [last := message(topic, "k")])
        async with joined(broker, topic, group) as member:
            come = await received(member, 1, self.patience, ack=True)
        assert ids(come) == [str(last.id)]

    @needs(lambda contract: contract.features.redelivers)
    async def test_what_a_member_leaves_reaches_another(
        self, connect: Callable[..., Awaitable[Broker]], broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        batch = numbered(topic, 10, key="k")
        await sent(broker, batch)
        async with joined(await connect(), topic, group) as member:
            come = await received(member, 10, self.patience)
            await member.ack(come[:4])
        async with joined(broker, topic, group) as member:
            again = await received(member, 6, self.patience, ack=True)
        assert ids(again) == ids(batch[4:])

    async def test_nack_brings_it_again(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        batch = numbered(topic, 4, key="k")
        await sent(broker, batch)
        async with joined(broker, topic, group) as member:
            come = await received(member, 4, self.patience)
            await member.ack(come[:2])
            await member.nack(come[2:], 0.05)
            again = await received(member, 2, self.patience, ack=True)
            assert set(ids(again)) == set(ids(batch[2:]))
            await sent(broker, [last := message(topic, "k")])
            assert ids(await received(member, 1, self.patience, ack=True)) == [str(last.id)]

    async def test_no_more_than_the_prefetch_is_unacknowledged(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        batch = numbered(topic, 50, key="k")
        await sent(broker, batch)
        async with joined(broker, topic, group, prefetch=10) as member:
            come = await received(member, 10, self.patience, limit=4)
            assert len(come) == 10
            assert await member.receive(100, 0.3) == []
            await member.ack(come)
            rest = await received(member, 40, self.patience, ack=True)
        assert ids([*come, *rest]) == ids(batch)

    @needs(lambda contract: contract.keeps_history)
    async def test_a_new_group_starts_where_it_says(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic)
        await sent(broker, old := numbered(topic, 5, key="k"))
        published: list[str] = []
        async with joined(broker, topic, f"{group}-new", start="latest") as latest:
            come: list[Any] = []

            async def something_came() -> bool:
                await sent(broker, [one := message(topic, "k")])
                published.append(str(one.id))
                come.extend(await some(latest, 100))
                return bool(come)

            await eventually(something_came, self.patience, "what is published after joining comes")
            assert set(ids(come)) <= set(published)
        async with joined(broker, topic, f"{group}-old", start="earliest") as earliest:
            found = await received(earliest, 5 + len(published), self.patience, ack=True)
        assert ids(found) == [*ids(old), *published]

    @needs(lambda contract: contract.has_foreign)
    async def test_a_foreign_message_arrives_as_it_is(
        self, server: Server, broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        await self.put_foreign(server, topic, b"\xff\x00 not ours")
        await sent(broker, [ours := message(topic, "k")])
        async with joined(broker, topic, group) as member:
            come: list[Any] = []
            deadline = time.monotonic() + self.patience
            while len(come) < 2:
                assert time.monotonic() < deadline, come
                come += await member.receive(10, 0.5)
            await member.ack(come)
        foreign = next(one for one in come if "ce_id" not in one.headers)
        assert foreign.payload == b"\xff\x00 not ours"
        assert foreign.topic == topic
        assert all(isinstance(part, str) for pair in foreign.headers.items() for part in pair)
        assert foreign.key is None or isinstance(foreign.key, str)
        assert [one.headers["ce_id"] for one in come if one is not foreign] == [str(ours.id)]

    async def test_closing_while_a_member_waits(
        self, connect: Callable[..., Awaitable[Broker]], broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        closing = await connect()
        async with within(self.patience), joined(closing, topic, group) as member:
            waiting = asyncio.create_task(some(member, 10, timeout=1))
            await asyncio.sleep(0)
            await closing.close()
            assert await waiting == []

    @needs(lambda contract: contract.tells_lag)
    async def test_lag_is_what_the_group_has_not_acknowledged(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        async with joined(broker, topic, group) as member:
            await eventually(lambda: _is(member, 0), self.patience, "a lag of 0")
            await sent(broker, numbered(topic, 10, key="k"))
            await eventually(lambda: _is(member, 10), self.patience, "a lag of 10")
            come = await received(member, 10, self.patience)
            await member.ack(come[:4])
            await eventually(lambda: _is(member, 6), self.patience, "a lag of 6")
            await member.ack(come[4:])
            await eventually(lambda: _is(member, 0), self.patience, "a lag of 0 again")


async def _is(member: Any, count: int) -> bool:
    return bool(await member.lag() == count)
