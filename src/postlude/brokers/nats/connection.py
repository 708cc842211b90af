"""One connection. It does not mend itself: whoever uses it makes a new one, so that nothing is sent twice behind our
back and an outage is not logged by the client."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any

import nats
from nats import errors
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from postlude.brokers.nats.options import Own
from postlude.errors import BrokerUnavailable

OUTAGE = (errors.Error, OSError)
"""TimeoutError is an OSError."""

_log = logging.getLogger("postlude.brokers.nats")


class Connection:
    """`closed` is done when it is over, for whatever reason."""

    def __init__(self, client: Any, closed: asyncio.Future[None], timeout: float) -> None:
        self.client = client
        self.closed = closed
        self.jetstream: JetStreamContext = client.jetstream(timeout=timeout)
        self._inbox: str = client.new_inbox()
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._count = 0

    async def listen(self) -> None:
        await self.client.subscribe(f"{self._inbox}.*", cb=self._answered)

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> asyncio.Future[None]:
        """Under way when it returns. The future is done when the stream has it, or says why not."""
        self._count += 1
        token = str(self._count)
        future = asyncio.get_running_loop().create_future()
        self._asked[token] = future
        future.add_done_callback(lambda _: self._asked.pop(token, None))
        await self.client.publish(subject, payload, reply=f"{self._inbox}.{token}", headers=dict(headers))
        return future

    async def _answered(self, message: Any) -> None:
        future = self._asked.get(message.subject.rpartition(".")[2])
        if future is None or future.done():
            return
        if (message.headers or {}).get("Status") == "503":
            future.set_exception(errors.NoRespondersError())
            return
        try:
            answer = json.loads(message.data)
            if "error" in answer:
                APIError.from_error(answer["error"])  # raises what it makes of it
        except (APIError, ValueError) as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    async def end(self) -> None:
        try:
            await self.client.close()
        except OUTAGE as error:
            _log.debug("closing: %s", error)


async def connect(name: str, servers: Sequence[str], given: Mapping[str, Any], own: Own) -> Connection:
    """To the first server that answers. Raises BrokerUnavailable."""
    last: BaseException | None = None
    try:
        async with asyncio.timeout(own.timeout):
            for server in random.sample(servers, len(servers)):  # shares the load
                try:
                    return await _connect(server, given, own)
                except OUTAGE as error:
                    last = error
    except TimeoutError as error:
        last = error
    raise BrokerUnavailable(f"{name} cannot be reached ({type(last).__name__})") from last


async def _connect(server: str, given: Mapping[str, Any], own: Own) -> Connection:
    closed = asyncio.get_running_loop().create_future()

    async def on_close() -> None:
        if not closed.done():
            closed.set_result(None)

    async def on_error(error: Exception) -> None:
        _log.debug("%s: %s", server, error)

    client = await nats.connect(
        server,
        **given,
        allow_reconnect=False,
        connect_timeout=max(1, int(own.timeout)),
        error_cb=on_error,
        closed_cb=on_close,
    )
    connection = Connection(client, closed, own.timeout)
    try:
        await connection.listen()
        await _have_stream(connection.jetstream, own)
    except BaseException:
        await connection.end()
        raise
    return connection


async def _have_stream(jetstream: JetStreamContext, own: Own) -> None:
    """One that is there already is left as it is: it is somebody's."""
    if not own.create:
        return
    try:
        await jetstream.stream_info(own.stream)
    except NotFoundError:
        await jetstream.add_stream(
            StreamConfig(
                name=own.stream,
                subjects=list(own.subjects),
                storage=StorageType.FILE,
                num_replicas=own.replicas,
                duplicate_window=own.duplicate_window,
            )
        )
