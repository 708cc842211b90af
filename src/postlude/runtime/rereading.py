"""Where messages wait that a consumer could not take: they become dead letters, and get another look when requeued."""

from __future__ import annotations

from collections.abc import Sequence

from postlude.core.delivery import Fence
from postlude.core.lifecycle import Status
from postlude.core.outcome import HELD, SENT, Fault, Outcome, Rejected
from postlude.errors import DatabaseUnavailable, KeysUnavailable, PostludeError
from postlude.inbox.accepting import Accepting
from postlude.inbox.unreadable import fault_of, position_of, received_of
from postlude.ports.destination import Entry, Terms
from postlude.runtime.opening import Open, plain


class RereadingDestination:
    def __init__(self, accepting: Accepting, open: Open, *, lanes: int) -> None:
        self._accepting = accepting
        self._open = open
        self.terms = Terms(name=accepting.consumer.destination, kind="consumer", lanes=lanes, batch=1)

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:  # noqa: ARG002 - twice is a duplicate
        return [await self._one(entry) for entry in entries]

    async def _one(self, entry: Entry) -> Outcome:
        if entry.delivery.status != Status.failed:  # nobody has asked for another look yet
            return Rejected(fault_of(entry.event))
        try:
            event = await plain(entry.event, self._open)
            await self._accepting.take(received_of(event), lambda _: position_of(event))
        except (DatabaseUnavailable, KeysUnavailable):
            return HELD
        except PostludeError as error:
            return Rejected(Fault(type(error).__name__, error.code, at=entry.event.topic))
        return SENT

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""
