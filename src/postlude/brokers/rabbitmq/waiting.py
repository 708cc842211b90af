"""What a member has been delivered and nobody has taken yet, in order, and what was put back for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from postlude.ports.broker import Received


class _Place(msgspec.Struct):
    received: Received
    due: float


class Waiting:
    """Oldest first. While a message must wait, later ones of its key wait too."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._changed = asyncio.Event()

    def add(self, received: Received) -> None:
        self._places.append(_Place(received, 0.0))
        self._changed.set()

    def put_back(self, received: Sequence[Received], delay: float) -> None:
        """Before all that came later. Messages are received in order, hence tags tell."""
        due = asyncio.get_running_loop().time() + delay
        again = {one.place: _Place(one, due) for one in received}
        others = [place for place in self._places if place.received.place not in again]
        self._places = sorted([*others, *again.values()], key=_tag)
        self._changed.set()

    def wake(self) -> None:
        self._changed.set()

    async def next(self, limit: int, timeout: float, is_alive: Callable[[], bool]) -> list[Received]:
        """Up to that many that may go now; empty when the time is over, or when no more can come."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        while True:
            self._changed.clear()
            if found := self._take(limit, now()):
                return found
            left = min([deadline, *(place.due for place in self._places if place.due)]) - now()
            if not is_alive() or deadline <= now():
                return []
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _take(self, limit: int, now: float) -> list[Received]:
        taken: list[Received] = []
        kept: list[_Place] = []
        held: set[str] = set()
        for place in self._places:
            key = place.received.key
            if len(taken) >= limit or place.due > now or (key is not None and key in held):
                kept.append(place)
                if key is not None and place.due > now:
                    held.add(key)
            else:
                taken.append(place.received)
        self._places = kept
        return taken


def _tag(place: _Place) -> int:
    tag: int = place.received.place[1]
    return tag
