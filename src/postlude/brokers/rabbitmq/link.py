"""One connection to the server: opened in time, closed in time, also when nobody answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, cast

from aiormq import exceptions as amqp
from aiormq.channel import Channel
from aiormq.connection import Connection, TCPTransportFactory, TLSTransportFactory, TransportFactory
from yarl import URL

from postlude.brokers.rabbitmq.faults import LOST
from postlude.brokers.rabbitmq.options import Target
from postlude.errors import BrokerUnavailable

PARTING = 2.0
"""Seconds for an orderly end."""
CONNECTING = 10.0

HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (amqp.ProbableAuthenticationError, "Check the user and the password of the URL."),
    (amqp.AuthenticationError, "The server offers other ways to log in; see the option auth."),
    (amqp.ConnectionNotAllowed, "Check that the vhost of the URL exists and that the user may use it."),
    # The client does not tell what the server said when it closed a connection that was being opened.
    (amqp.InvalidFrameError, "Check that the vhost of the URL exists and that the user may use it."),
    (
        amqp.ChannelPreconditionFailed,
        "It exists with other properties: delete it, or see to it yourself and set the option declare to false.",
    ),
    (
        amqp.ChannelAccessRefused,
        "Give the user the right to make it, or make it yourself and set the option declare to false.",
    ),
    (amqp.ChannelNotFoundEntity, "Make the exchange, or leave the option declare at true."),
)

# It writes tracebacks for every lost connection. We say it once, in our own words; a level that was set is left alone.
if logging.getLogger("aiormq").level == logging.NOTSET:
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)


@contextmanager
def telling() -> Iterator[None]:
    """The client cancels whoever waits for a connection that it gives up. That is no wish of ours to end."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise amqp.ConnectionClosed(0, "the connection was given up") from None


class Wire(TransportFactory):
    """Opens the socket and remembers it, so that a connection to a server that hangs can be cut."""

    def __init__(self, inner: TransportFactory) -> None:
        self._inner = inner
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await self._inner.create(url, **options)
        return reader, self._writer

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class Link:
    """A connection, and channels that wait for their next use."""

    def __init__(self, connection: Connection, wire: Wire) -> None:
        self._connection = connection
        self._wire = wire
        self._idle: list[Channel] = []

    @property
    def is_alive(self) -> bool:
        return self._connection.is_opened

    @property
    def version(self) -> tuple[int, ...]:
        """Of the server, such as (3, 10)."""
        said = self._connection.server_properties.get("version", "")
        parts = said.decode() if isinstance(said, bytes) else str(said)
        return tuple(int(part) for part in parts.split(".")[:2] if part.isdigit())

    async def is_blocked(self) -> bool:
        """Has the server said that it reads nothing for now?"""
        try:
            async with asyncio.timeout(0):
                await self._connection.ready()
        except TimeoutError:
            return True
        return False

    async def channel(self) -> Channel:
        """A new one, or one that was given back."""
        while self._idle:
            if not (channel := self._idle.pop()).is_closed:
                return channel
        if not self.is_alive:
            raise amqp.ConnectionClosed(0, "the connection is closed")
        return cast("Channel", await self._connection.channel())

    def give_back(self, channel: Channel) -> None:
        """Nothing is under way on it."""
        self._idle.append(channel)

    @asynccontextmanager
    async def in_time(self, seconds: float) -> AsyncIterator[None]:
        """For asking the server. A little later the connection is cut: the client itself may wait for a server that
        takes nothing, even when it is told to stop."""
        rescue = asyncio.get_running_loop().call_later(seconds + 1.0, self._wire.cut)
        try:
            async with asyncio.timeout(seconds):
                with telling():
                    yield
        finally:
            rescue.cancel()

    async def close(self) -> None:
        """In order if the server answers; what it has received until now is handled by it."""
        with suppress(*LOST):
            async with self.in_time(PARTING):
                await self._connection.close(amqp.ConnectionClosed(0, "closed by us"))
        await self.cut()

    async def cut(self) -> None:
        """Without a word: the server hangs, or it is gone."""
        self._wire.cut()
        with suppress(*LOST):
            async with self.in_time(PARTING):
                await self._connection.close(amqp.ConnectionClosed(0, "closed by us"))


async def prepared(target: Target) -> Link:
    """A new connection to a server that has our exchange. Raises BrokerUnavailable."""
    link = await _connected(target)
    try:
        async with link.in_time(target.options.timeout):
            if target.options.declare:
                channel = await link.channel()
                await channel.exchange_declare(target.options.exchange, exchange_type="topic", durable=True)
                link.give_back(channel)
    except LOST as error:
        await link.cut()
        raise unavailable(target, error) from None
    except BaseException:
        await link.cut()
        raise
    return link


async def _connected(target: Target) -> Link:
    wire = Wire(TLSTransportFactory() if target.url.scheme == "amqps" else TCPTransportFactory())
    connection = Connection(target.url, context=target.context, transport_factory=wire)
    try:
        async with asyncio.timeout(min(CONNECTING, target.options.timeout)):
            with telling():
                await connection.connect()
                await connection.connected.wait()
    except LOST as error:
        wire.cut()
        raise unavailable(target, error) from None
    except BaseException:
        wire.cut()
        raise
    return Link(connection, wire)


def unavailable(target: Target, error: BaseException) -> BrokerUnavailable:
    if isinstance(error, amqp.InvalidFrameError):
        said = "the server refused the connection"
    else:
        said = " ".join(str(part) for part in error.args if part) or "no answer in time"
    hint = next((hint for kind, hint in HINTS if isinstance(error, kind)), None)
    return BrokerUnavailable(f"RabbitMQ at {target.shown} is not available: {said}", hint=hint)
