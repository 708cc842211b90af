"""The blocked map: keys that wait for an older entry, and where their first waiting entry stands.

It lets floors pass waiting entries. It is an optimisation only: the stored `blocks` flag is the truth, and the map
may be dropped at any time by setting floors to 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

MAX_KEYS = 10_000


class Waiting(msgspec.Struct):
    """The first waiting entry of a key."""

    lane: int
    seq: int


class BlockedMap:
    """Which keys of one destination wait. Bounded: what does not fit is not remembered, and its floor stays."""

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._keys: dict[str, Waiting] = {}

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

    def free(self, key: str) -> Waiting | None:
        """The key waits no more; read again from its first waiting entry."""
        return self._keys.pop(key, None)

    def items(self) -> Iterable[tuple[str, int]]:
        """Every waiting key with its first waiting seq, to be probed."""
        return [(key, waiting.seq) for key, waiting in self._keys.items()]

    def drop_lanes(self, lanes: Iterable[int]) -> None:
        """Forget the keys of lanes that are not ours any more."""
        gone = set(lanes)
        self._keys = {key: waiting for key, waiting in self._keys.items() if waiting.lane not in gone}
