"""What a relay makes of the rows it reads: run, wait, or leave alone. Pure, so that its order can be proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from postlude.core.blocked import BlockedMap
from postlude.core.delivery import Delivery
from postlude.core.floors import Floors, Track
from postlude.core.lifecycle import Status
from postlude.core.ready import Ready, Turn


class Intake:
    """Floors, blocked map and ready entries of one destination, kept consistent with each other."""

    def __init__(
        self,
        *,
        ordered_failure: bool = False,
        ordered_lanes: bool = False,
        commits_first: bool = False,
        turn: Turn | None = None,
    ) -> None:
        self.floors = Floors()
        self.blocked = BlockedMap()
        self.ready = Ready(ordered_failure=ordered_failure, turn=turn)
        self._ordered_lanes = ordered_lanes
        self._commits_first = commits_first
        self._cautious: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._concluded: set[int] = set()
        self._failing: dict[int, str] = {}
        self._doubtful: set[str] = set()
        self._suspects: set[str] = set()
        self._due: set[int] = set()

    # ------------------------------------------------------------ lanes

    def own(self, lane: int, cautious_to: int) -> None:
        """A new lane starts from the beginning. Up to `cautious_to` its entries run one at a time."""
        # Caution marks entries as started, and one that is given back after that would leave a lane's order. Where
        # every attempt is committed before it begins, what killed a worker is known by its starts: only that waits.
        self._cautious[lane] = 0 if self._ordered_lanes or self._commits_first else cautious_to
        self._fresh.add(lane)
        self.floors.own([lane])

    def disown(self, lanes: Iterable[int]) -> None:
        """Forget everything that waits in lanes that are not ours any more."""
        gone = list(lanes)
        self.floors.disown(gone)
        self.blocked.drop_lanes(gone)
        for delivery in self.ready.drop_lanes(gone):
            self._due.discard(delivery.seq)
        for lane in gone:
            self._cautious.pop(lane, None)

    def reread_all(self) -> None:
        """Forget what was remembered of the rows: the next read begins at the beginning."""
        owned = dict(self._cautious)
        self.disown(owned)
        for lane, cautious_to in owned.items():
            self.own(lane, cautious_to)

    def is_cautious(self, delivery: Delivery) -> bool:
        """May this entry have killed a former owner?"""
        return delivery.seq <= self._cautious.get(delivery.lane, 0)

    # ------------------------------------------------------------ reading

    def begin(self) -> None:
        """A read begins: what is concluded from now on may still come back in its rows, and of a lane that is owned
        from now on, or again, it knows only a part."""
        self._fresh.clear()
        self._concluded.clear()
        self._doubtful.clear()

    @property
    def waiting_due(self) -> list[int]:
        """Due rows that are here already or wait for their key, to be left out of the next due read."""
        return [*self._due, *self.blocked.due]

    def accept(self, rows: Iterable[Delivery], wanted: Callable[[Delivery], bool] = lambda _: True) -> int:
        """Take in the rows of a hot or due read, in seq order. Gives how many became ready."""
        accepted = 0
        doubtful = self._doubtful.union(self._failing.values())
        for row in rows:
            if row.lane not in self._cautious or row.lane in self._fresh:
                continue
            if row.seq in self.ready or row.seq in self._concluded:
                continue
            if not wanted(row):
                continue
            if self._waits(row):
                self._hold(row)
                continue
            if self._order(row) in doubtful and row.status is Status.pending:
                self.floors.lower(row.lane, row.priority, row.seq, later=True)
                continue
            if self.ready.is_crowded(row):
                self._put_off(row)
                continue
            self.ready.add(row, careful=self.is_cautious(row))
            if row.status is not Status.pending:
                self._due.add(row.seq)
            accepted += 1
        return accepted

    def came_back(self, tracks: list[Track], rows: list[Delivery], limit: int, stable: int) -> None:
        """A hot read is answered: move its floors."""
        last: dict[tuple[int, int], tuple[int, int]] = {}
        for row in rows:
            count, _ = last.get((row.lane, row.priority), (0, 0))
            last[row.lane, row.priority] = (count + 1, row.seq)
        self.floors.read(tracks, last, limit, stable)

    def wake_postponed(self) -> None:
        """The time has come for what was put off; not where a careful lane has enough to do for now."""
        self.floors.wake_postponed(self.ready.busy_lanes())

    # ------------------------------------------------------------ concluding

    def concluded(self, delivery: Delivery) -> None:
        """The row is settled or has its verdict; the next of its key may go."""
        self._concluded.add(delivery.seq)
        self._due.discard(delivery.seq)
        if self._failing.pop(delivery.seq, None) is not None:
            self._doubt(delivery)
        key = delivery.key
        if key is not None and key in self.blocked and not self.ready.has_followers(key):
            self._suspects.add(key)
        self.ready.done(delivery)

    def failed(self, delivery: Delivery) -> None:
        """An entry will hold its key: what comes after it waits. Call this before the verdict is sent.

        The key is remembered even when no follower is known: until the verdict is durable the store says that nothing
        holds it, and a read under way may say so even later.
        """
        if delivery.key is None:
            return
        self._failing[delivery.seq] = delivery.key
        for follower in self.ready.drop_key(delivery.key):
            self._hold(follower)
        if not self.blocked.hold(delivery.key, delivery.lane, delivery.seq + 1):
            self.floors.lower(delivery.lane, delivery.priority, delivery.seq + 1, later=True)

    def give_up(self, delivery: Delivery, *, later: bool) -> None:
        """No outcome: the entry, and what stands behind it, is read again in its place."""
        if (order := self._order(delivery)) is not None:
            for follower in self.ready.drop(lambda one: self._order(one) == order):
                self._reread(follower, later=later)
        self._failing.pop(delivery.seq, None)
        self._doubt(delivery)
        self._reread(delivery, later=later)
        self.ready.done(delivery)

    # ------------------------------------------------------------ blocked keys

    def suspects(self, *, all_keys: bool) -> list[tuple[str, int]]:
        """Keys that may be free now: those whose head was concluded here, or every one."""
        items = list(self.blocked.items())
        found = items if all_keys else [item for item in items if item[0] in self._suspects]
        self._suspects.clear()
        return found

    def freed(self, keys: Iterable[str]) -> None:
        """The store says that nothing holds these keys: read on from their first waiting entry."""
        for key in keys:
            waiting = self.blocked.free(key)
            if waiting is not None:
                self.floors.lower(waiting.lane, 1, waiting.seq)

    # ------------------------------------------------------------ inside

    def _waits(self, row: Delivery) -> bool:
        if row.key is None:
            return False
        # A due row is the head that others wait for: only what the store says can hold it.
        return row.blocked or (row.status is Status.pending and row.key in self.blocked)

    def _hold(self, row: Delivery) -> None:
        self._due.discard(row.seq)
        if row.key is None:
            return
        if row.status is not Status.pending:
            self.blocked.hold_due(row.key, row.lane, row.seq)
        elif not self.blocked.hold(row.key, row.lane, row.seq):
            self.floors.lower(row.lane, row.priority, row.seq, later=True)

    def _doubt(self, delivery: Delivery) -> None:
        """A read under way may show the key as it was: what it brings of it is read again."""
        if (order := self._order(delivery)) is not None:
            self._doubtful.add(order)

    def _order(self, delivery: Delivery) -> str | None:
        """What an entry must not be overtaken in: its key, or nothing; or all of its lane."""
        return f"lane {delivery.lane}" if self._ordered_lanes else delivery.key

    def _put_off(self, row: Delivery) -> None:
        """Too many wait before it: remember the key, or read the row again later."""
        if row.status is not Status.pending:
            return
        if row.key is None or self.is_cautious(row) or not self.blocked.hold(row.key, row.lane, row.seq):
            self.floors.lower(row.lane, row.priority, row.seq, later=True)

    def _reread(self, delivery: Delivery, *, later: bool) -> None:
        self._due.discard(delivery.seq)
        if delivery.status is Status.pending:
            self.floors.lower(delivery.lane, delivery.priority, delivery.seq, later=later)
