"""The adapter: publishing with confirmations, each message under its id, and members of groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nats import errors as nats
from nats.js.errors import NotFoundError

from postlude.brokers.nats import wire
from postlude.brokers.nats.connection import OUTAGE, Connection, connect
from postlude.brokers.nats.errors import NoStream, outcome_of
from postlude.brokers.nats.options import servers_of, split
from postlude.brokers.nats.subscription import NatsSubscription
from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import SENT, Outcome
from postlude.errors import BrokerUnavailable
from postlude.ports.broker import BrokerFeatures, Start
from postlude.secrecy import shown_url


class NatsBroker:
    """`options` are those of `options.Own`, and arguments of `nats.connect`."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._own, given = split(options or {})
        self.features = BrokerFeatures(ordered_by_key=self._own.single_active, native_dedup=True)
        self._servers, login = servers_of(url)
        self._given = {**login, **given}
        self._name = shown_url(url)
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._calls: set[asyncio.Future[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"NatsBroker({self._name!r})"

    async def open(self) -> None:
        """Connects with the first message: a worker starts also while the broker is down."""
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=self._own.timeout)
        if self._connection is not None:
            self._drop(self._connection)
        if self._endings:
            await asyncio.wait(list(self._endings), timeout=self._own.timeout)

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]:
        if not messages:
            return []
        if self._is_closed:
            raise BrokerUnavailable(f"{self._name} was closed here")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._own.timeout
        ended = loop.create_future()
        self._calls.add(ended)
        try:
            connection = await self._connected(deadline)
            return await self._publish(connection, messages, deadline)
        finally:
            self._calls.discard(ended)
            ended.set_result(None)

    @asynccontextmanager
    async def subscribe(
        self, topics: Sequence[str], group: str, *, start: Start = "earliest", prefetch: int = 500
    ) -> AsyncIterator[NatsSubscription]:
        """With a connection of its own."""

        async def join() -> Connection:
            return await connect(self._name, self._servers, self._given, self._own)

        subscription = NatsSubscription(join, topics, group, start=start, prefetch=prefetch, own=self._own)
        await subscription.enter()
        try:
            yield subscription
        finally:
            await subscription.leave()

    # ------------------------------------------------------------ parts

    async def _publish(
        self, connection: Connection, messages: Sequence[BrokerMessage], deadline: float
    ) -> list[Outcome]:
        """All are written in order, then all confirmations are awaited."""
        answers: list[asyncio.Future[None] | BaseException] = []
        try:
            async with asyncio.timeout_at(deadline):
                for message in messages:
                    answers.append(await _begin(connection, message))  # noqa: PERF401 - those begun must be known
                waiting = [answer for answer in answers if isinstance(answer, asyncio.Future)]
                if waiting:
                    await _all_answered(waiting, connection.closed)
        except TimeoutError:
            pass  # seen below: what has no answer is not known to be sent
        answers += [TimeoutError()] * (len(messages) - len(answers))
        errors = [_error(answer) for answer in answers]
        if any(isinstance(error, TimeoutError) for error in errors):
            self._drop(connection)
        return [
            SENT if error is None else outcome_of(await self._explained(connection, error, message.topic, deadline))
            for message, error in zip(messages, errors, strict=True)
        ]

    async def _explained(
        self, connection: Connection, error: BaseException, topic: str, deadline: float
    ) -> BaseException:
        """Nobody answered for the subject: is there no stream for it, or no server that has it?"""
        if not isinstance(error, nats.NoRespondersError):
            return error
        try:
            async with asyncio.timeout_at(deadline):
                await connection.jetstream.find_stream_name_by_subject(topic)
        except NotFoundError:
            return NoStream(f"no stream takes {topic}")
        except OUTAGE:
            return error
        return error

    async def _connected(self, deadline: float) -> Connection:
        try:
            async with asyncio.timeout_at(deadline), self._connecting:
                if (connection := self._connection) is not None and connection.closed.done():
                    self._drop(connection)
                if self._connection is None:
                    self._connection = await connect(self._name, self._servers, self._given, self._own)
                return self._connection
        except TimeoutError as error:
            raise BrokerUnavailable(f"{self._name} cannot be reached in time") from error

    def _drop(self, connection: Connection) -> None:
        """Close it in the background: a server that hangs keeps it for a while."""
        if self._connection is connection:
            self._connection = None
        ending = asyncio.create_task(connection.end())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


async def _begin(connection: Connection, message: BrokerMessage) -> asyncio.Future[None] | BaseException:
    if not wire.is_subject(message.topic):
        return nats.BadSubjectError()
    headers = wire.headers_of(message)
    if wire.size_of(headers, message.payload) > connection.client.max_payload:
        return nats.MaxPayloadError()
    try:
        return await connection.publish(message.topic, message.payload, headers)
    except OUTAGE as error:
        if isinstance(error, TimeoutError):
            raise
        return error


async def _all_answered(answers: Sequence[asyncio.Future[None]], closed: asyncio.Future[None]) -> None:
    """Or the connection has ended, which answers nobody."""
    everything: asyncio.Future[Any] = asyncio.ensure_future(asyncio.wait(answers))
    try:
        await asyncio.wait([everything, closed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        everything.cancel()


def _error(answer: asyncio.Future[None] | BaseException) -> BaseException | None:
    if isinstance(answer, BaseException):
        return answer
    if answer.cancelled() or not answer.done():
        answer.cancel()
        return TimeoutError()
    return answer.exception()
