"""A member of a consumer group. Offsets are committed for what was acknowledged, and never past what was not."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka

from postlude.brokers.kafka.progress import Progress
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Received, Start

DEFAULTS: Mapping[str, Any] = {"heartbeat_interval_ms": 1000}
"""A member that comes or goes is noticed by the others with their next heartbeat."""

ASIDE = 2.0
"""Seconds at most for what may be lost or stay unknown: commits and the lag."""

_OUTAGE = (kafka.KafkaError, OSError)


class KafkaSubscription(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """Joins when it is entered, and again in `receive` after a failure."""

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        group: str,
        *,
        start: Start,
        prefetch: int,
        options: Mapping[str, Any],
        timeout: float,
    ) -> None:
        self._name = name
        self._topics = list(topics)
        self._start = start
        self._prefetch = prefetch
        self._options = {**DEFAULTS, **options, "group_id": group, "enable_auto_commit": False}
        # Also for `latest`, which is said once when the group is new: afterwards nothing may be skipped.
        self._options["auto_offset_reset"] = "earliest"
        self._timeout = timeout
        self._consumer: Any = None
        self._endings: set[asyncio.Task[None]] = set()
        self._forget(())

    def _forget(self, assigned: Iterable[TopicPartition]) -> None:
        """A new assignment, or none: what is not acknowledged comes again, to us or to somebody else. The places of
        what was received before are dead."""
        self._progress: dict[TopicPartition, Progress] = defaultdict(Progress)
        self._positions: dict[TopicPartition, int] = {}
        self._paused: dict[TopicPartition, float] = {}
        self._unplaced = set(assigned) if self._start == "latest" else set()

    # ------------------------------------------------------------ membership

    async def enter(self) -> None:
        """An outage is none of the caller's business yet: `receive` says so."""
        try:
            await self._joined()
        except BrokerUnavailable:
            return

    async def leave(self) -> None:
        if self._consumer is not None:
            await self._commit()
            self._drop()
        if self._endings:
            await asyncio.wait(list(self._endings), timeout=self._timeout)

    async def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ARG002 - all of them, always
        self._forget(())

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._forget(assigned)

    async def _joined(self) -> Any:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(**self._options)
            consumer.subscribe(self._topics, listener=self)
            self._consumer = consumer
            await self._ask(consumer.start())
        if self._unplaced:
            await self._ask(self._begin_at_the_end(self._consumer))
        return self._consumer

    async def _ask(self, request: Any) -> Any:
        """After a failure the member is gone, and the next one begins where the group was."""
        try:
            async with asyncio.timeout(self._timeout):
                return await request
        except _OUTAGE as error:
            self._drop()
            raise BrokerUnavailable(f"{self._name} cannot be reached ({type(error).__name__})") from error
        except asyncio.CancelledError:
            self._drop()
            raise

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._forget(())
        # In the background, and to its end: a broker that hangs keeps it for as long as requests last.
        ending = asyncio.create_task(_stop(consumer))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _begin_at_the_end(self, consumer: Any) -> None:
        """Where a new group begins is committed at once: a member that dies before its first message must not make
        the group begin anew, behind what has come meanwhile."""
        for partition in list(self._unplaced):
            if await consumer.committed(partition) is None:
                end = (await consumer.end_offsets([partition]))[partition]
                if partition in self._unplaced:
                    consumer.seek(partition, end)
                    await consumer.commit({partition: end})
            self._unplaced.discard(partition)

    # ------------------------------------------------------------ receiving

    async def receive(self, limit: int, timeout: float) -> list[Received]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        consumer = await self._joined()
        while True:
            wait = min(self._resume(consumer, clock()), max(deadline - clock(), 0.0))
            room = min(limit, self._prefetch - sum(each.held for each in self._progress.values()))
            if room <= 0:
                await asyncio.sleep(wait)
                return []
            found = self._taken(consumer, await self._fetch(consumer, room, wait))
            if found or clock() >= deadline:
                return found
            consumer = await self._joined()

    async def _fetch(self, consumer: Any, room: int, wait: float) -> Mapping[TopicPartition, Sequence[Any]]:
        try:
            # The client waits on through a rebalance, which may take longer than we were given.
            async with asyncio.timeout(wait + self._timeout):
                records: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(
                    timeout_ms=int(wait * 1000), max_records=room
                )
        except TimeoutError:
            return {}
        except _OUTAGE as error:
            self._drop()
            raise BrokerUnavailable(f"{self._name} fails to deliver ({type(error).__name__})") from error
        return records

    def _taken(self, consumer: Any, records: Mapping[TopicPartition, Sequence[Any]]) -> list[Received]:
        found: list[Received] = []
        for partition, group in records.items():
            if partition in self._unplaced:  # given to us a moment ago; not yet where it should begin
                consumer.seek(partition, group[0].offset)
                continue
            progress = self._progress[partition]
            found += [_received(record, progress) for record in group if progress.take(record.offset)]
        return found

    async def ack(self, received: Sequence[Received]) -> None:
        for one in received:
            progress, partition, offset, _ = one.place
            if self._is_ours(progress, partition) and (position := progress.ack(offset)) is not None:
                self._positions[partition] = position
        await self._commit()

    async def nack(self, received: Sequence[Received], delay: float) -> None:
        """The partition waits as a whole, so that nothing overtakes."""
        refused: set[TopicPartition] = set()
        for one in received:
            progress, partition, offset, _ = one.place
            if self._is_ours(progress, partition):
                progress.refuse(offset)
                refused.add(partition)
        for partition in refused:
            if (first := self._progress[partition].first_refused) is not None:
                self._consumer.seek(partition, first)
                if delay > 0:
                    self._consumer.pause(partition)
                    self._paused[partition] = asyncio.get_running_loop().time() + delay

    def position(self, received: Received) -> str | None:
        """With the time: a topic that is deleted and made again counts from the beginning."""
        _, partition, offset, time = received.place
        return f"{partition.topic}/{partition.partition}/{offset}@{time}"

    async def lag(self) -> int | None:
        if (consumer := self._consumer) is None:
            return None
        try:
            async with asyncio.timeout(min(self._timeout, ASIDE)):
                return await self._lag(consumer)
        except _OUTAGE:
            return None

    # ------------------------------------------------------------ parts

    async def _lag(self, consumer: Any) -> int:
        partitions = [
            TopicPartition(topic, number)
            for topic in self._topics
            for number in consumer.partitions_for_topic(topic) or ()
        ]
        ends, begins, *committed = await asyncio.gather(
            consumer.end_offsets(partitions),
            consumer.beginning_offsets(partitions),
            *(consumer.committed(partition) for partition in partitions),
        )
        first = begins if self._start == "earliest" else ends
        places = zip(partitions, committed, strict=True)
        return sum(ends[each] - (first[each] if place is None else max(place, begins[each])) for each, place in places)

    async def _commit(self) -> None:
        """What cannot be committed now goes with the next commit; lost, it only means a duplicate."""
        if not (positions := dict(self._positions)) or self._consumer is None:
            return
        try:
            async with asyncio.timeout(min(self._timeout, ASIDE)):
                await self._consumer.commit(positions)
        except (kafka.CommitFailedError, kafka.IllegalStateError):
            pass  # the partitions are somebody else's by now
        except _OUTAGE:
            return
        for partition, position in positions.items():
            if self._positions.get(partition) == position:
                del self._positions[partition]

    def _is_ours(self, progress: Progress, partition: TopicPartition) -> bool:
        """Still: after a rebalance the same offset may have been received anew."""
        return self._progress.get(partition) is progress

    def _resume(self, consumer: Any, now: float) -> float:
        """Partitions whose delay is over are read on; the seconds until the next one is."""
        for partition in [each for each, due in self._paused.items() if due <= now]:
            del self._paused[partition]
            consumer.resume(partition)
        return min((due - now for due in self._paused.values()), default=float("inf"))


def _received(record: Any, progress: Progress) -> Received:
    partition = TopicPartition(record.topic, record.partition)
    return Received(
        topic=record.topic,
        key=None if record.key is None else _text(record.key),
        payload=record.value or b"",
        headers={name: _text(value or b"") for name, value in record.headers},
        place=(progress, partition, record.offset, record.timestamp),
    )


def _text(raw: bytes) -> str:
    """Others may put any bytes there; what differs stays different."""
    return raw.decode(errors="backslashreplace")


async def _stop(consumer: Any) -> None:
    """In an outage it cannot say goodbye, and the group notices by itself. Its parts are ended one by one: the client
    may stop half-way, with the cancelling of a task of its own."""
    consumer._closed = True  # noqa: SLF001
    for part in (consumer._coordinator, consumer._fetcher, consumer._client):  # noqa: SLF001
        if part is not None:
            try:
                await part.close()
            except (*_OUTAGE, asyncio.CancelledError):
                continue
