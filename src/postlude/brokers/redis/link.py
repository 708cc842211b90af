"""Commands to Redis, many at once on one connection, each with its own answer, and never waiting for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from postlude.brokers.redis.faults import word_of
from postlude.errors import BadUrl, BrokerUnavailable, ConfigurationError
from postlude.secrecy import shown_url

Command = Sequence[str | bytes | int]

LARGE = 16_384
"""From this size on a value is not copied."""


class Link:
    """Connections of one broker. They are made when they are needed, and again when they broke."""

    def __init__(self, url: str, options: Mapping[str, Any], timeout: float) -> None:
        self._timeout = timeout
        self._url = url
        # The deadline is ours and spans connecting, writing and reading; what was sent is never sent again unasked.
        own = {"decode_responses": False, "protocol": 2, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)}
        try:
            self._pool = ConnectionPool.from_url(url, **{"socket_connect_timeout": timeout, **options, **own})
        except ValueError as error:
            hint = "Use redis://user:password@host:6379/0"
            raise BadUrl(f"{shown_url(url)} is not a URL of Redis", hint=hint) from error
        self._pool.connection_kwargs.update(own)  # again: what stands in the URL has won over it
        try:
            self._pool.connection_class(**self._pool.connection_kwargs)  # connects nothing, and knows its options
        except TypeError as error:
            hint = "Names of brokers.NAME.options are those of the adapter and of redis-py."
            raise ConfigurationError(f"the client of Redis refuses an option: {error}", hint=hint) from error

    async def ask(self, commands: Sequence[Command], wait: float = 0.0) -> list[Any]:
        """An answer each, in order: bytes, numbers and lists, or the error in its place. What was not answered has
        the reason: it may have been done or not. `wait` is for commands that wait at the server."""
        answers: list[Any] = []
        connection = None
        try:
            async with asyncio.timeout(self._timeout + wait):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]  # the client types not all of itself
                await connection.send_packed_command(packed(commands))
                for _ in commands:
                    answers += [await _answer(connection)]
        except (RedisError, OSError) as error:  # TimeoutError is one of the system's
            answers += [error] * (len(commands) - len(answers))
        finally:
            if connection is not None:
                await self._pool.release(connection)
        return answers

    async def require(self, commands: Sequence[Command], wait: float = 0.0) -> list[Any]:
        """The answers, of which none is an error."""
        answers = await self.ask(commands, wait)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise self.unavailable(answer)
        return answers

    def unavailable(self, error: BaseException) -> BrokerUnavailable:
        said = str(error) or f"no answer within {self._timeout:g} s"
        return BrokerUnavailable(f"{shown_url(self._url)}: {word_of(error)}: {said}")

    async def close(self) -> None:
        """Whoever waits for an answer is told that the connection is gone."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._pool.disconnect(inuse_connections=True)
        except (RedisError, OSError):
            pass  # it was gone already


def packed(commands: Sequence[Command]) -> list[bytes]:
    """As they go over the wire. The client can do it too, in more than twice the time, which is most of a batch's."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for one in command:
            value = one if isinstance(one, bytes) else str(one).encode()
            if len(value) < LARGE:
                parts.append(b"$%d\r\n%b\r\n" % (len(value), value))
            else:
                parts += (b"$%d\r\n" % len(value), value, b"\r\n")
    return parts


async def _answer(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
