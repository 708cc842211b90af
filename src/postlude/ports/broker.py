"""What the engine asks of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from postlude.core.envelope import BrokerMessage
from postlude.core.outcome import Outcome


class BrokerFeatures(msgspec.Struct, frozen=True):
    """What a broker can do; asked, never guessed."""

    ordered_failure: bool = False
    """When a message fails, later ones of its key in the same call are not published either, and come back Held."""


class Broker(Protocol):
    """A messaging system outside.

    `publish` gives one outcome a message, in order: Sent only when the broker has confirmed it; Failed and Rejected
    speak of the message, Unavailable of the broker. It raises only `BrokerUnavailable`, and then nothing is known to
    have been sent. It is safe to publish the same message again. `close` flushes and may be called twice.
    """

    features: BrokerFeatures

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[Outcome]: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...
