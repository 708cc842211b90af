"""Ready: what was read and waits for its turn in this worker. One entry of a key is under way at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from postlude.core.delivery import PRIORITIES, Delivery

Token = tuple[str, str | int]
MAX_FOLLOWERS = 32
"""Of one key."""
MAX_CAREFUL = 512
"""Of one careful lane: all of it waits for one turn, and reading it again and again would cost more than room."""


class Turn:
    """Of suspects, entries whose worker may have died of them, one at a time is under way in a process: so that the
    next to die of one takes no other down with it more than once."""

    def __init__(self) -> None:
        self._holder: int | None = None

    @property
    def is_free(self) -> bool:
        return self._holder is None

    def take(self, seq: int) -> None:
        self._holder = seq

    def leave(self, seq: int) -> None:
        if self._holder == seq:
            self._holder = None


class Ready:
    """The waiting and the running entries of one destination.

    `ordered_failure`: the destination itself stops later entries of a key when an earlier one fails in the same
    batch, so that a batch may carry several of one key.
    """

    def __init__(self, *, ordered_failure: bool = False, turn: Turn | None = None) -> None:
        self._ordered_failure = ordered_failure
        self._turn = turn or Turn()
        self._suspects: deque[Delivery] = deque()
        self._heads: tuple[deque[Delivery], ...] = tuple(deque() for _ in PRIORITIES)
        self._owed = [0] * len(self._heads)
        """By class, in tenths of an entry."""
        self._followers: dict[Token, deque[Delivery]] = {}
        self._tokens: dict[int, Token | None] = {}
        self._running: dict[int, Delivery] = {}
        self._careful: dict[int, int] = {}
        self._plain: dict[int, int] = {}

    def __contains__(self, seq: object) -> bool:
        return seq in self._tokens

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def waiting(self) -> int:
        """How many could still be taken, now or after those before them."""
        return len(self._tokens) - len(self._running)

    @property
    def startable(self) -> int:
        """How many could be taken now."""
        return sum(map(len, self._heads)) + bool(self._suspects)

    def is_crowded(self, delivery: Delivery) -> bool:
        """Do enough entries wait for the same turn already? More would only take the room of others."""
        token = self._token(delivery, careful=delivery.lane in self._careful)
        limit = MAX_CAREFUL if token and token[0] == "lane" else MAX_FOLLOWERS
        return token is not None and len(self._followers.get(token, ())) >= limit

    def busy_lanes(self) -> set[int]:
        """Careful lanes with enough to do for now."""
        return {lane for lane, count in self._careful.items() if count > MAX_CAREFUL // 2}

    def has_followers(self, key: str) -> bool:
        """Does an entry of the key wait behind another one?"""
        return bool(self._followers.get(("key", key)))

    @property
    def running(self) -> Iterable[int]:
        """The seqs that are under way."""
        return self._running.keys()

    def lanes(self) -> set[int]:
        """The lanes that have something under way."""
        return {delivery.lane for delivery in self._running.values()}

    def add(self, delivery: Delivery, *, careful: bool = False) -> None:
        """Queue an entry. A careful lane runs one entry at a time until all of it has passed."""
        lane = delivery.lane
        # A lane is careful as a whole or not at all: two kinds of token would let a key overtake itself.
        careful = (careful and lane not in self._plain) or lane in self._careful
        counts = self._careful if careful else self._plain
        counts[lane] = counts.get(lane, 0) + 1
        token = self._token(delivery, careful=careful)
        self._tokens[delivery.seq] = token
        if token is not None and token in self._followers:
            self._followers[token].append(delivery)
            return
        if token is not None:
            self._followers[token] = deque()
        self._line(delivery).append(delivery)

    def take(self, limit: int) -> list[Delivery]:
        """The next entries to start. High goes first, but every class that waits gets a tenth, in the long run if
        the limit is small."""
        for priority, heads in enumerate(self._heads):
            self._owed[priority] = self._owed[priority] + limit if heads else 0
        shares = [min(owed // 10, len(heads)) for owed, heads in zip(self._owed, self._heads, strict=True)]
        taken = self._take_suspect() if limit else []
        for priority, heads in enumerate(self._heads):
            left = limit - len(taken)
            room = max(left - sum(shares[priority + 1 :]), min(shares[priority], left))
            taken += _pop(heads, room)
        for heads in self._heads:
            taken += _pop(heads, limit - len(taken))
        for delivery in taken:
            self._owed[delivery.priority] = max(0, self._owed[delivery.priority] - 10)
        self._running.update((delivery.seq, delivery) for delivery in taken)
        return taken

    def next(self, limit: int) -> list[Delivery]:
        """What will be taken soon."""
        return [delivery for heads in self._heads for delivery in islice(heads, limit)][:limit]

    def done(self, delivery: Delivery) -> None:
        """An entry is no longer under way; the next of its key may go."""
        if self._running.pop(delivery.seq, None) is not None:
            self._turn.leave(delivery.seq)
            self._leave(delivery)

    def drop(self, condition: Callable[[Delivery], bool]) -> list[Delivery]:
        """Take back waiting entries, oldest first; those under way stay."""
        dropped: list[Delivery] = []
        for followers in self._followers.values():
            gone = _extract(followers, condition)
            for delivery in gone:
                self._forget(delivery)
            dropped += gone
        for heads in (*self._heads, self._suspects):
            gone = _extract(heads, condition)
            for delivery in gone:
                self._leave(delivery)
            dropped += gone
        return sorted(dropped, key=lambda delivery: delivery.seq)

    def drop_key(self, key: str) -> list[Delivery]:
        """Take back the waiting entries of a key, because one before them failed."""
        return self.drop(lambda delivery: delivery.key == key)

    def drop_lanes(self, lanes: Iterable[int]) -> list[Delivery]:
        """Take back the waiting entries of lanes."""
        gone = set(lanes)
        return self.drop(lambda delivery: delivery.lane in gone)

    def _token(self, delivery: Delivery, *, careful: bool) -> Token | None:
        """What an entry must hold to run: nothing, its key, or in a careful lane the lane."""
        if careful:
            return ("lane", delivery.lane)
        if delivery.key is None or self._ordered_failure:
            return None
        return ("key", delivery.key)

    def _forget(self, delivery: Delivery) -> Token | None:
        token = self._tokens.pop(delivery.seq, None)
        careful = token is not None and token[0] == "lane"
        counts = self._careful if careful else self._plain
        counts[delivery.lane] -= 1
        if not counts[delivery.lane]:
            del counts[delivery.lane]
        return token

    def _leave(self, delivery: Delivery) -> None:
        token = self._forget(delivery)
        if token is None:
            return
        followers = self._followers[token]
        if not followers:
            del self._followers[token]
            return
        follower = followers.popleft()
        self._line(follower).append(follower)

    def _line(self, delivery: Delivery) -> deque[Delivery]:
        """Where an entry waits that needs no other any more."""
        return self._suspects if delivery.starts else self._heads[delivery.priority]

    def _take_suspect(self) -> list[Delivery]:
        if not self._suspects or not self._turn.is_free:
            return []
        self._turn.take(self._suspects[0].seq)
        return [self._suspects.popleft()]


def _pop(queue: deque[Delivery], count: int) -> list[Delivery]:
    return [queue.popleft() for _ in range(min(count, len(queue)))]


def _extract(queue: deque[Delivery], condition: Callable[[Delivery], bool]) -> list[Delivery]:
    gone = [delivery for delivery in queue if condition(delivery)]
    if gone:
        kept = [delivery for delivery in queue if not condition(delivery)]
        queue.clear()
        queue.extend(kept)
    return gone
