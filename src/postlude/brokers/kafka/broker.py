"""The adapter: an idempotent producer that is made again when it must be, and members of groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import errors as kafka

from postlude.brokers.kafka import url as urls
from postlude.brokers.kafka.call import Call, waves
from postlude.brokers.kafka.producers import Producers
from postlude.brokers.kafka.subscription import KafkaSubscription
from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import HELD, Outcome
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import BrokerFeatures, Start
from postlude.secrecy import shown_url

TIMEOUT = 10.0
DEFAULTS: Mapping[str, Any] = {"max_batch_size": 262_144, "max_request_size": 1_048_576}


class KafkaBroker:
    """`options` are arguments of aiokafka's producer and consumer, each taken by whom it concerns, and `timeout`: the
    seconds in which a call ends, whatever the broker does."""

    features = BrokerFeatures(ordered_failure=True)

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        own = dict(options or {})
        self._timeout = float(own.pop("timeout", TIMEOUT))
        urls.check(own)
        given = {**DEFAULTS, "request_timeout_ms": int(self._timeout * 1000), **urls.connection(url), **own}
        urls.check_compression(given)
        self._name = shown_url(url)
        self._given = given
        self._producers = Producers(self._name, urls.producing(given))
        self._calls: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"KafkaBroker({self._name!r})"

    async def open(self) -> None:
        """Connects with the first message: a worker starts also while the broker is down."""
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=self._timeout)
        await self._producers.close(self._timeout)

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]:
        if not messages:
            return []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        if self._is_closed:
            raise BrokerUnavailable(f"{self._name} was closed here")
        ended = loop.create_future()
        self._calls.add(ended)
        try:
            call = Call(messages, deadline=deadline, max_bytes=self._given["max_request_size"])
            call.refuse_impossible()
            if call.open():
                await self._send(call)
        finally:
            self._calls.discard(ended)
            ended.set_result(None)
        return [HELD if outcome is None else outcome for outcome in call.outcomes]

    @asynccontextmanager
    async def subscribe(
        self, topics: Sequence[str], group: str, *, start: Start = "earliest", prefetch: int = 500
    ) -> AsyncIterator[KafkaSubscription]:
        subscription = KafkaSubscription(
            self._name,
            topics,
            group,
            start=start,
            prefetch=prefetch,
            options=urls.consuming(self._given),
            timeout=self._timeout,
        )
        await subscription.enter()
        try:
            yield subscription
        finally:
            await subscription.leave()

    # ------------------------------------------------------------ publishing

    async def _send(self, call: Call) -> None:
        async with self._producers.use(call.left) as running:
            partitions = await _partitions(running.producer, call)
        try:
            for wave in waves(call.messages, call.open()):
                async with self._producers.use(call.left) as running:
                    await call.send(running.producer, wave, partitions)
                    if call.is_late or call.again:
                        self._producers.retire(running)
                if call.again:
                    await self._send_singly(call, partitions)
        except BrokerUnavailable:  # in the middle: some may have been sent
            for index in call.open():
                call.fail(index, kafka.KafkaConnectionError())

    async def _send_singly(self, call: Call, partitions: Mapping[str, Sequence[int]]) -> None:
        """What failed in company, one by one and in order. A failure leaves a gap in the producer's sequence, hence
        a new producer after each."""
        again, call.again = sorted(call.again), []
        for index in again:
            if call.is_held(index):
                continue
            async with self._producers.use(call.left) as running:
                error = await call.send_alone(running.producer, index, partitions)
                if error is not None:
                    self._producers.retire(running)


async def _partitions(producer: Any, call: Call) -> dict[str, Sequence[int]]:
    """Of each topic; messages of a topic that has none fail. Half of the time is kept for the others."""
    topics = list(dict.fromkeys(call.messages[index].topic for index in call.open()))
    answers = await asyncio.gather(*(_partitions_of(producer, topic, call.left / 2) for topic in topics))
    found: dict[str, Sequence[int]] = {}
    failed: dict[str, BaseException] = {}
    for topic, answer in zip(topics, answers, strict=True):
        if isinstance(answer, BaseException):
            failed[topic] = answer
        else:
            found[topic] = answer
    for index in call.open():
        if not call.is_held(index) and (error := failed.get(call.messages[index].topic)) is not None:
            call.fail(index, error)
    return found


async def _partitions_of(producer: Any, topic: str, patience: float) -> Sequence[int] | BaseException:
    known = producer.client.cluster.partitions_for_topic(topic)
    if known:
        return sorted(known)
    try:
        async with asyncio.timeout(patience):
            return sorted(await producer.partitions_for(topic))
    except (TimeoutError, kafka.UnknownTopicOrPartitionError):
        # The client says that the topic is unknown also when it could ask nobody.
        return kafka.UnknownTopicOrPartitionError() if await _answers(producer, patience / 2) else TimeoutError()
    except (kafka.KafkaError, OSError) as error:
        return error


async def _answers(producer: Any, patience: float) -> bool:
    try:
        async with asyncio.timeout(patience):
            return bool(await producer.client.force_metadata_update())
    except TimeoutError:
        return False
