"""The destination `route`: rows that raw SQL producers wrote become one delivery for each destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postlude.core.delivery import Fence, StoredEvent
from postlude.core.lanes import ROUTE
from postlude.core.outcome import HELD, SETTLED, Fault, Outcome, Rejected
from postlude.ports.append import Route
from postlude.ports.destination import Entry, Terms
from postlude.ports.settling import Child, Settling


class RouteDestination:
    """One lane, so that rows are expanded in the order of their seq."""

    def __init__(self, settling: Settling, routes: Callable[[StoredEvent], Sequence[Route]], *, batch: int) -> None:
        self._settling = settling
        self._routes = routes
        self.terms = Terms(name=ROUTE, kind="route", lanes=1, batch=batch, ordered_failure=True, ordered_lanes=True)

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:
        children: list[Child] = []
        rejected: dict[int, Outcome] = {}
        for entry in entries:
            routes = self._routes(entry.event)
            if not routes:
                rejected[entry.delivery.seq] = Rejected(Fault("Unroutable", "append.unroutable", at=entry.event.type))
            children += [Child(entry.event.event_id, route.destination, route.lane, route.key) for route in routes]
        seqs = [entry.delivery.seq for entry in entries if entry.delivery.seq not in rejected]
        expanded = await self._settling.expand(fence, seqs, children) if seqs else set()
        return [
            rejected.get(entry.delivery.seq) or (SETTLED if entry.delivery.seq in expanded else HELD)
            for entry in entries
        ]

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""
