"""Which member of a group receives: the server pins one (from NATS 2.11 on), and another one when it is gone.

That alone keeps no order: what a member had when it died comes again only after a while, behind what is new. So whoever
was just pinned gives nothing to its caller until all that was with others is with it, or acknowledged.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nats.js.errors import APIError

from postlude.brokers.nats.connection import Connection
from postlude.brokers.nats.options import Own
from postlude.brokers.nats.wire import PIN

GROUP = "postlude"
MISMATCH = "423"
NANO = 1e9


def policy(own: Own) -> dict[str, Any]:
    """Part of the configuration of a durable consumer."""
    if not own.single_active:
        return {}
    timeout = int(own.ack_wait * NANO)
    return {"priority_groups": [GROUP], "priority_policy": "pinned_client", "priority_timeout": timeout}


class Pinning:
    """Of one member."""

    def __init__(self, own: Own, consumer: str) -> None:
        self._own = own
        self._consumer = consumer
        self._pin: str | None = None
        self._kept_at = 0.0
        self.is_clear = not own.single_active
        """Nothing is with others."""
        self.waiting: dict[int, Any] = {}
        """What was received and the caller does not have yet, by its number in the stream."""

    @property
    def is_pinned(self) -> bool:
        return self._pin is not None

    def asking(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request, as the server wants it of a member."""
        if not self._own.single_active:
            return request
        return {**request, "group": GROUP} | ({"id": self._pin} if self._pin else {})

    def take(self, message: Any) -> None:
        if self._own.single_active:
            pin = (message.headers or {}).get(PIN)
            if pin is None:  # an older server, which pins nobody
                self.is_clear = True
            elif pin != self._pin:
                self._pin, self.is_clear = pin, False
        self.waiting[message.metadata.sequence.stream] = message

    def give(self, limit: int) -> list[Any]:
        """In the order of the stream."""
        if not self.is_clear:
            return []
        return [self.waiting.pop(number) for number in sorted(self.waiting)[:limit]]

    def forget(self) -> None:
        """The connection is gone; the server may still know us."""
        self.waiting = {}
        self.is_clear = not self._own.single_active

    async def lose(self) -> None:
        """Somebody else is pinned: what the caller does not have yet is for that one."""
        self._pin, self.is_clear = None, False
        lost, self.waiting = self.waiting, {}
        for message in lost.values():
            await message.nak()

    async def missing(self, connection: Connection, held: int) -> int:
        """How many messages are with others, as far as we know; none of them when we are clear."""
        info = await ask(connection, self._own.timeout, f"CONSUMER.INFO.{self._own.stream}.{self._consumer}")
        pinned = {state.get("pinned_client_id") for state in info.get("priority_groups") or ()}
        others = int(info.get("num_ack_pending", 0)) - held - len(self.waiting)
        self.is_clear = others <= 0 and self._pin in pinned
        await self._keep()
        return max(others, 1)

    async def _keep(self) -> None:
        """What waits here must not be given to others meanwhile."""
        now = asyncio.get_running_loop().time()
        if not self.is_clear and now - self._kept_at > self._own.ack_wait / 4:
            self._kept_at = now
            for message in self.waiting.values():
                await message.in_progress()

    async def leave(self, connection: Connection) -> None:
        """Others need not wait until the server notices."""
        for message in self.waiting.values():
            await message.nak()
        if self.is_pinned:
            place = f"CONSUMER.UNPIN.{self._own.stream}.{self._consumer}"
            await ask(connection, self._own.timeout, place, {"group": GROUP})


async def ask(
    connection: Connection, timeout: float, what: str, request: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What JetStream says, as it says it: the client does not know everything."""
    body = b"" if request is None else json.dumps(request).encode()
    answer = await connection.client.request(f"$JS.API.{what}", body, timeout=timeout)
    said: dict[str, Any] = json.loads(answer.data)
    if "error" in said:
        APIError.from_error(said["error"])  # raises what it makes of it
    return said
