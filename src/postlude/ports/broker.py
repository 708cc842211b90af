"""What the engine asks of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

import msgspec

from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import Outcome

Start = Literal["earliest", "latest"]


class BrokerFeatures(msgspec.Struct, frozen=True):
    """What a broker can do; asked, never guessed."""

    ordered_by_key: bool = True
    """Messages of one key reach a group in the order in which they were confirmed."""
    ordered_failure: bool = False
    """When a message fails, later ones of its key in the same call are not published either, and come back Held."""
    groups: bool = True
    """Members of a group share its messages; every group gets all of them."""
    persistent: bool = True
    """What was confirmed survives a crash of the broker."""
    native_dedup: bool = False
    """A message id that was published before, within the broker's window, is stored once."""
    redelivers: bool = True
    """What a member received and never acknowledged reaches another one."""
    max_bytes: int | None = None
    """The largest payload, where it is known before sending."""


class Received(msgspec.Struct, frozen=True):
    """A message as it arrived. What it means is not this layer's business: it may be foreign or broken."""

    topic: str
    key: str | None
    payload: bytes
    headers: dict[str, str]
    place: Any
    """Where it stands in the broker: the adapter's own, for acknowledging."""


class Subscription(Protocol):
    """A member of a group. One task uses it; `receive` may wait while nothing is there."""

    async def receive(self, limit: int, timeout: float) -> list[Received]:
        """Up to that many, oldest first; empty when nothing came in time. Raises only `BrokerUnavailable`, after
        which it may be called again: it reconnects by itself."""

    async def ack(self, received: Sequence[Received]) -> None:
        """They are safe with us: never deliver them again. Called after our commit, in the order they were received;
        one that is lost on the way only means a duplicate."""

    async def nack(self, received: Sequence[Received], delay: float) -> None:
        """Not now: deliver them again, after a while where the broker can wait."""

    def position(self, received: Received) -> str | None:
        """Where it stands in the broker, the same whenever it comes again; None where the broker cannot tell."""

    async def lag(self) -> int | None:
        """How many messages the group has not acknowledged; None where the broker cannot tell."""


class Broker(Protocol):
    """A messaging system outside.

    `publish` gives one outcome a message, in order: Sent only when the broker has confirmed it; Failed and Rejected
    speak of the message, Unavailable of the broker. All messages of a call are under way at once, those of one key in
    order. It raises only `BrokerUnavailable`, and then nothing is known to have been sent. It is safe to publish the
    same message again. It never waits longer than its own timeout, also when the broker hangs. `close` flushes and may
    be called twice, also while something is under way.
    """

    features: BrokerFeatures

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    def subscribe(
        self, topics: Sequence[str], group: str, *, start: Start = "earliest", prefetch: int = 500
    ) -> AbstractAsyncContextManager[Subscription]:
        """Join a group. `start` is where a group begins that is new."""
