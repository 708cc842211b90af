"""The blocked map: keys that wait for an older entry, and where their first waiting entry stands.

It lets floors pass waiting entries. It is an optimisation only: the stored `blocks` flag is the truth, and the map
may be dropped at any time by setting floors to 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

MAX_KEYS = 10_000
MAX_DUE = 10_000


class Waiting(msgspec.Struct):
    """The first waiting entry of a key, and its entries that are due and wait."""

    lane: int
    seq: int
    due: set[int] = msgspec.field(default_factory=set)


class BlockedMap:
    """Which keys of one destination wait. Bounded: what does not fit is not remembered, and its floor stays."""

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._keys: dict[str, Waiting] = {}
        self.due: set[int] = set()
        """Entries that are due and wait for their key."""

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def hold(self, key: str, lane: int, seq: int) -> bool:
        """Remember that the key waits from that seq on. False: no room."""
        waiting = self._keys.get(key)
        if waiting is not None:
            waiting.seq = min(waiting.seq, seq)
            return True
        if len(self._keys) >= self._max_keys:
            return False
        self._keys[key] = Waiting(lane, seq)
        return True

    def hold_due(self, key: str, lane: int, seq: int) -> None:
        """The same for an entry whose time has come: due reads leave it out, or it would stand in the way of others,
        of the very entry it waits for too."""
        if len(self.due) < MAX_DUE:
            waiting = self._keys.setdefault(key, Waiting(lane, seq))
            waiting.seq = min(waiting.seq, seq)
            waiting.due.add(seq)
            self.due.add(seq)

    def free(self, key: str) -> Waiting | None:
        """The key waits no more; read again from its first waiting entry."""
        waiting = self._keys.pop(key, None)
        if waiting is not None:
            self.due -= waiting.due
        return waiting

    def items(self) -> Iterable[tuple[str, int]]:
        """Every waiting key with its first waiting seq, to be probed."""
        return [(key, waiting.seq) for key, waiting in self._keys.items()]

    def drop_lanes(self, lanes: Iterable[int]) -> None:
        """Forget the keys of lanes that are not ours any more."""
        gone = set(lanes)
        for key in [key for key, waiting in self._keys.items() if waiting.lane in gone]:
            self.free(key)
