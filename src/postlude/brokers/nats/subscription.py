"""A member of a group: a durable pull consumer that all members share."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from nats.js.errors import NotFoundError

from postlude.brokers.nats import wire
from postlude.brokers.nats.connection import OUTAGE, Connection
from postlude.brokers.nats.options import Own
from postlude.brokers.nats.pinning import MISMATCH, NANO, Pinning, ask, policy
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import Received, Start

LATE = 2.0
"""Seconds at most for what may be lost or stay unknown: answers to messages, and the lag."""

LOOK_EVERY = 0.1
"""Seconds between two looks whether what others had has come."""

_NAME = re.compile(r"[^A-Za-z0-9_-]")


class NatsSubscription:
    """Joins when it is entered, and again in `receive` after a failure."""

    def __init__(
        self,
        join: Callable[[], Awaitable[Connection]],
        topics: Sequence[str],
        group: str,
        *,
        start: Start,
        prefetch: int,
        own: Own,
    ) -> None:
        self._join = join
        self._topics = list(topics)
        self._consumer = _NAME.sub("_", group)
        self._start = start
        self._prefetch = prefetch
        self._own = own
        self._connection: Connection | None = None
        self._pulls: Any = None
        self._inbox = ""
        self._count = 0
        self._held: dict[int, Any] = {}
        """What the caller has, by its number in the stream."""
        self._pinning = Pinning(own, self._consumer)
        self._endings: set[asyncio.Task[None]] = set()

    async def enter(self) -> None:
        """An outage is none of the caller's business yet: `receive` says so."""
        try:
            await self._joined()
        except BrokerUnavailable:
            return

    async def leave(self) -> None:
        """What is not acknowledged is given back, so that others need not wait for it."""
        if (connection := self._connection) is not None:
            try:
                async with asyncio.timeout(min(self._own.timeout, LATE)):
                    for message in self._held.values():
                        await message.nak()
                    await self._pinning.leave(connection)
                    await connection.client.flush()
            except OUTAGE:
                pass  # the server gives it to others by itself, later
            self._drop()
        if self._endings:
            await asyncio.wait(list(self._endings), timeout=self._own.timeout)

    # ------------------------------------------------------------ receiving

    async def receive(self, limit: int, timeout: float) -> list[Received]:
        connection = await self._joined()
        try:
            found = await self._next_of(connection, limit, timeout)
        except OUTAGE as error:
            self._drop()
            raise BrokerUnavailable(f"NATS fails to deliver ({type(error).__name__})") from error
        for message in found:
            self._held[message.metadata.sequence.stream] = message
        return [wire.received(message) for message in found]

    async def _next_of(self, connection: Connection, limit: int, timeout: float) -> list[Any]:
        pinning = self._pinning
        room = min(limit, self._prefetch - len(self._held) - len(pinning.waiting))
        if not pinning.waiting:
            if room <= 0:
                await asyncio.sleep(timeout)
                return []
            await self._new(connection, room, timeout)
        if pinning.waiting and not pinning.is_clear:
            missing = await pinning.missing(connection, len(self._held))
            if not pinning.is_clear:
                await self._collect(connection, missing, timeout)
        return pinning.give(limit)

    async def _new(self, connection: Connection, room: int, timeout: float) -> None:
        patience = self._own.timeout
        found = await self._pull(connection, {"batch": room, "no_wait": True}, room, patience)
        if not found and timeout > 0:
            # One only, and then what has come with it: a request that ends by itself leaves nothing behind.
            nanoseconds = max(int(timeout * 1e9), 1_000_000)
            found = await self._pull(connection, {"batch": 1, "expires": nanoseconds}, 1, timeout + patience)
            if found and room > 1:
                await self._pull(connection, {"batch": room - 1, "no_wait": True}, room - 1, patience)

    async def _collect(self, connection: Connection, missing: int, timeout: float) -> None:
        """What others had comes again before what is new. Ask with one: more of what is new would only wait here."""
        found = await self._pull(connection, {"batch": 1, "no_wait": True}, 1, self._own.timeout)
        if found and found[0].metadata.num_delivered > 1:
            await self._pull(connection, {"batch": missing, "no_wait": True}, missing, self._own.timeout)
        else:
            await asyncio.sleep(min(timeout, LOOK_EVERY))

    async def ack(self, received: Sequence[Received]) -> None:
        await _tell(message.ack for message in self._settled(received))

    async def nack(self, received: Sequence[Received], delay: float) -> None:
        await _tell(partial(message.nak, delay or None) for message in self._settled(received))

    def position(self, received: Received) -> str | None:
        """With the time: a stream that is deleted and made again counts from the beginning."""
        known = received.place.metadata
        return f"{known.stream}/{known.sequence.stream}@{known.timestamp.isoformat()}"

    async def lag(self) -> int | None:
        if (connection := self._connection) is None:
            return None
        try:
            async with asyncio.timeout(min(self._own.timeout, LATE)):
                info = await connection.jetstream.consumer_info(self._own.stream, self._consumer)
        except OUTAGE:
            return None
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    # ------------------------------------------------------------ parts

    def _settled(self, received: Sequence[Received]) -> Iterator[Any]:
        """Those that are still ours: one may have come anew, or over an earlier connection."""
        for message in (one.place for one in received):
            number = message.metadata.sequence.stream
            if self._held.get(number) is message:
                del self._held[number]
                yield message

    async def _pull(self, connection: Connection, request: dict[str, Any], count: int, patience: float) -> list[Any]:
        """Until that many came or the server says that the request has ended."""
        self._count += 1
        reply = f"{self._inbox}.{self._count}"
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._own.stream}.{self._consumer}"
        found: list[Any] = []
        async with asyncio.timeout(patience):
            asking = self._pinning.asking(request)
            await connection.client.publish(subject, json.dumps(asking).encode(), reply=reply)
            while len(found) < count:
                message = await self._next(connection)
                if not message.reply:  # a status; those of earlier requests came late
                    if message.subject == reply and _ends(message):
                        if _status(message) == MISMATCH:
                            self._held = {}
                            await self._pinning.lose()
                        break
                    continue
                found.append(message)
                self._pinning.take(message)
        return found

    async def _next(self, connection: Connection) -> Any:
        if self._pulls.pending_msgs:
            return await self._pulls.next_msg(timeout=None)
        coming = asyncio.ensure_future(self._pulls.next_msg(timeout=None))
        try:
            await asyncio.wait([coming, connection.closed], return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise ConnectionResetError("the connection has ended")
            return coming.result()
        finally:
            coming.cancel()

    async def _joined(self) -> Connection:
        if (connection := self._connection) is not None and connection.closed.done():
            self._drop()
        if self._connection is None:
            connection = await self._join()
            self._connection = connection
            try:
                async with asyncio.timeout(self._own.timeout):
                    await self._have_consumer(connection)
                    self._inbox = connection.client.new_inbox()
                    self._pulls = await connection.client.subscribe(f"{self._inbox}.*")
                    # What is not for a pull has its own subject, yet comes over the same subscription.
            except OUTAGE as error:
                self._drop()
                raise BrokerUnavailable(
                    f"the group cannot be joined ({type(error).__name__})",
                    hint=f"Does the stream {self._own.stream} exist, and does it take {', '.join(self._topics)}?",
                ) from error
        return self._connection

    async def _have_consumer(self, connection: Connection) -> None:
        """A group that is there keeps its place; only its topics may change."""
        place, timeout = f"{self._own.stream}.{self._consumer}", self._own.timeout
        try:
            config = (await ask(connection, timeout, f"CONSUMER.INFO.{place}"))["config"]
        except NotFoundError:
            config = {
                "durable_name": self._consumer,
                "deliver_policy": "all" if self._start == "earliest" else "new",
                "ack_policy": "explicit",
                "ack_wait": int(self._own.ack_wait * NANO),
                "max_ack_pending": self._own.max_ack_pending,
                **policy(self._own),
            }
        else:
            had = config.get("filter_subjects") or [config.get("filter_subject")]
            if sorted(filter(None, had)) == sorted(self._topics):
                return
        config |= {"filter_subject": None, "filter_subjects": self._topics}
        if len(self._topics) == 1:
            config |= {"filter_subject": self._topics[0], "filter_subjects": None}
        wanted = {name: value for name, value in config.items() if value is not None}
        request = {"stream_name": self._own.stream, "config": wanted}
        await ask(connection, timeout, f"CONSUMER.DURABLE.CREATE.{place}", request)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._held = {}
        self._pinning.forget()
        if connection is not None:
            ending = asyncio.create_task(connection.end())
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)


def _ends(message: Any) -> bool:
    """Nothing there (404), time is over (408), or it cannot be served now (409, 503); 100 only says that it lives."""
    return _status(message) != "100"


def _status(message: Any) -> str | None:
    status: str | None = (message.headers or {}).get("Status")
    return status


async def _tell(answers: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """What is lost on the way only means a duplicate."""
    try:
        async with asyncio.timeout(LATE):
            for answer in list(answers):
                await answer()
    except OUTAGE:
        return
