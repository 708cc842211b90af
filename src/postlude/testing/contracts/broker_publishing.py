"""Publishing: outcomes, order, what is refused, headers, duplicates, closing."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from postlude.core.outcome import HELD, SENT, Failed, Rejected
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Broker, Received
from postlude.testing.contracts.broker_arrange import (
    BrokerUnderTest,
    arrives,
    ids,
    joined,
    message,
    needs,
    numbered,
    received,
    sent,
    within,
)


class BrokerPublishing(BrokerUnderTest):
    """Scenarios of a server that is well."""

    async def test_it_declares_what_it_can(self, broker: Broker) -> None:
        assert broker.features == self.features

    async def test_a_batch_is_under_way_at_once(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        assert await broker.publish([]) == []
        batch = [message(topic, f"key-{number % 50}", str(number).encode()) for number in range(500)]
        await sent(broker, batch)
        async with joined(broker, topic, group) as member:
            come = await received(member, 500, self.patience, ack=True)
        assert {(one.headers["ce_id"], one.key, one.payload, one.topic) for one in come} == {
            (str(one.id), one.key, one.payload, topic) for one in batch
        }

    @needs(lambda contract: contract.features.ordered_by_key)
    async def test_a_key_keeps_its_order(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        keys = [f"key-{number}" for number in range(5)]
        batches = [
            [message(topic, key, b"%d" % (call * 20 + n)) for n in range(20) for key in keys] for call in (0, 1, 2)
        ]
        for batch in batches:
            await sent(broker, batch)
        async with joined(broker, topic, group) as member:
            come = await received(member, 300, self.patience, ack=True, limit=70)
        for key in keys:
            assert [int(one.payload) for one in come if one.key == key] == list(range(60))

    async def test_headers_arrive_as_they_were(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        many = {f"h-{number}": f"value {number}" for number in range(60)}
        odd = {
            "unicode": "grün ☂ \U0001f426",
            "empty": "",
            "long": "x" * 8000,
            "spaces": " a = b; c ",
            "dots.and_more": "1",
        }
        one, other = message(topic, "k", b"1", headers=many), message(topic, "k", b"2", headers=odd)
        await sent(broker, [one, other])
        async with joined(broker, topic, group) as member:
            first, second = await received(member, 2, self.patience, ack=True)
        assert first.headers == one.headers
        assert second.headers == other.headers

    async def test_payloads_and_keys_arrive_as_they_were(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        batch = [
            message(topic, None, b""),
            message(topic, "grün ☂", bytes(range(256))),
            message(topic, "k" * 200, b"\xff\xfe" * 50_000),
            message(topic, "a b*c>d.#", b'{"a": 1}'),
        ]
        await sent(broker, batch)
        async with joined(broker, topic, group) as member:
            come = await received(member, 4, self.patience, ack=True)
        found = {one.headers["ce_id"]: (one.key, one.payload) for one in come}
        assert found == {str(one.id): (one.key, one.payload) for one in batch}

    @needs(lambda contract: contract.too_large is not None)
    async def test_what_is_too_large_is_rejected_alone(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        batch = [message(topic, "a"), message(topic, "b", self._large()), message(topic, "c"), message(topic, "d")]
        outcomes = await broker.publish(batch)
        assert isinstance(outcomes[1], Rejected)
        assert [outcomes[0], *outcomes[2:]] == [SENT] * 3
        await sent(broker, [message(topic, "e")])
        async with joined(broker, topic, group) as member:
            come = await received(member, 4, self.patience, ack=True)
        assert str(batch[1].id) not in ids(come)

    @needs(lambda contract: contract.too_large is not None and contract.features.ordered_failure)
    async def test_a_failure_holds_the_rest_of_its_key(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        keyed = [message(topic, "a"), message(topic, "a", self._large()), message(topic, "a"), message(topic, "a")]
        other = [message(topic, "b"), message(topic, "b")]
        outcomes = await broker.publish([keyed[0], other[0], *keyed[1:], other[1]])
        assert [outcomes[0], outcomes[1], outcomes[5]] == [SENT] * 3
        assert isinstance(outcomes[2], Rejected)
        assert outcomes[3:5] == [HELD, HELD]
        await sent(broker, [last := message(topic, "a")])
        async with joined(broker, topic, group) as member:
            come = await received(member, 4, self.patience, ack=True)
        assert set(ids(come)) == set(ids([keyed[0], *other, last]))

    @needs(lambda contract: contract.has_dead_end)
    async def test_what_has_nowhere_to_go_fails_alone(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        nowhere = await self.dead_end(broker)
        batch = [message(topic, "a"), message(nowhere, "b"), message(topic, "c")]
        async with within(self.patience):
            outcomes = await broker.publish(batch)
        assert isinstance(outcomes[1], Rejected | Failed)
        assert [outcomes[0], outcomes[2]] == [SENT, SENT]
        await sent(broker, [message(topic, "d")])

    @needs(lambda contract: not contract.features.native_dedup)
    async def test_a_duplicate_is_sent_and_keeps_its_id(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        one, last = message(topic, "k"), message(topic, "k")
        await sent(broker, [one])
        await sent(broker, [one, one, last])
        async with joined(broker, topic, group) as member:
            come: list[Received] = []
            async with within(self.patience):
                while str(last.id) not in ids(come):
                    come += await member.receive(10, 1)
        assert ids(come) == [str(one.id)] * 3 + [str(last.id)]

    @needs(lambda contract: contract.features.native_dedup)
    async def test_a_duplicate_is_stored_once(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        one, last = message(topic, "k"), message(topic, "k")
        await sent(broker, [one])
        await sent(broker, [one, one, last])
        async with joined(broker, topic, group) as member:
            come: list[Received] = []
            async with within(self.patience):
                while str(last.id) not in ids(come):
                    come += await member.receive(10, 1)
        assert ids(come) == [str(one.id), str(last.id)]

    async def test_many_callers_publish_at_once(self, broker: Broker, topic: str, group: str) -> None:
        await self.declare(broker, topic, group)
        batches = [numbered(topic, 20, key=f"key-{caller}") for caller in range(10)]
        await asyncio.gather(*(sent(broker, batch) for batch in batches))
        async with joined(broker, topic, group) as member:
            come = await received(member, 200, self.patience, ack=True)
        assert set(ids(come)) == {str(one.id) for batch in batches for one in batch}

    async def test_closing_twice_and_during_a_publish(
        self, connect: Callable[..., Awaitable[Broker]], broker: Broker, topic: str, group: str
    ) -> None:
        await self.declare(broker, topic, group)
        closing = await connect()
        batch = numbered(topic, 500)
        publishing = asyncio.create_task(closing.publish(batch))
        await asyncio.sleep(0)
        async with within(self.patience):
            await asyncio.gather(closing.close(), closing.close())
            try:
                outcomes = await publishing
            except BrokerUnavailable:
                outcomes = []
            await closing.close()
        confirmed = [one for one, outcome in zip(batch, outcomes, strict=False) if outcome == SENT]
        await sent(broker, [last := message(topic)])
        async with joined(broker, topic, group) as member:
            await arrives(member, [*confirmed, last], self.patience)

    def _large(self) -> bytes:
        assert self.too_large is not None
        return b"x" * self.too_large
