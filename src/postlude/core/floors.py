"""Floors: where the next read of each owned lane begins, so that settled history is never walked again.

A floor passes a seq only when every row up to it is settled or remembered by this worker (under way, or its key in
the blocked map) and, by the horizon, none can still appear. A new owner starts at 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from postlude.core.delivery import PRIORITIES

STRIDE = 256
MAX_STRIDE = 4096
MAX_ROWS = 16_384


class Track(msgspec.Struct):
    """One lane at one priority: the unit that is read in seq order."""

    lane: int
    priority: int
    floor: int = 0
    dirty: bool = True
    postponed: bool = False
    reading: bool = False
    lowered: int | None = None

    def lower(self, floor: int) -> None:
        """Something above that seq must be read again."""
        self.floor = min(self.floor, floor)
        if self.reading:
            self.lowered = floor if self.lowered is None else min(self.lowered, floor)


class Floors:
    """The tracks of one destination in this worker."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[int, int], Track] = {}
        self._stride = 0

    def own(self, lanes: Iterable[int]) -> None:
        """Lanes that are ours from now on."""
        for lane in lanes:
            for priority in PRIORITIES.values():
                self._tracks[lane, priority] = Track(lane, priority)

    def disown(self, lanes: Iterable[int]) -> None:
        """Lanes that are ours no more."""
        for lane in lanes:
            for priority in PRIORITIES.values():
                self._tracks.pop((lane, priority), None)

    def flag(self, lane: int, priority: int, since: int) -> None:
        """There is news in a lane: a row above `since`, below which everything had been seen."""
        track = self._tracks.get((lane, priority))
        if track is None:
            return
        if not (track.dirty or track.postponed or track.reading):
            track.floor = max(track.floor, since)
        track.dirty = True

    def flag_all(self) -> None:
        """There may be news everywhere."""
        for track in self._tracks.values():
            track.dirty = True

    def lower(self, lane: int, priority: int, seq: int, *, later: bool = False) -> None:
        """The row at `seq` was given up without an outcome: read it again, at once or at the next due read."""
        track = self._tracks.get((lane, priority))
        if track is None:
            return
        track.lower(seq - 1)
        if later:
            track.postponed = True
        else:
            track.dirty = True

    def wake_postponed(self, busy: Collection[int] = ()) -> None:
        """The time has come for what was put off, except in lanes that are busy."""
        for track in self._tracks.values():
            if track.postponed and track.lane not in busy:
                track.postponed, track.dirty = False, True

    @property
    def has_dirty(self) -> bool:
        return any(track.dirty for track in self._tracks.values())

    def plan(self, rows: int) -> tuple[list[Track], int]:
        """The tracks to read now and how many rows of each. Every plan is answered by `read` or `unread`."""
        tracks = [track for track in self._tracks.values() if track.dirty]
        for track in tracks:
            track.dirty, track.reading, track.lowered = False, True, None
        if not tracks:
            return [], 0
        limit = max(-(-rows // len(tracks)), self._stride)
        return tracks, max(1, min(limit, MAX_ROWS // len(tracks)))

    def read(
        self, tracks: Iterable[Track], last_seqs: dict[tuple[int, int], tuple[int, int]], limit: int, stable: int
    ) -> None:
        """A planned read came back. `last_seqs` has the count and last seq of each track; `stable` is the horizon
        that held before the read began."""
        for track in tracks:
            count, last = last_seqs.get((track.lane, track.priority), (0, 0))
            cut = count >= limit
            floor = max(track.floor, min(stable, last) if cut else stable)
            track.floor = floor if track.lowered is None else min(floor, track.lowered)
            track.dirty = track.dirty or cut or (track.lowered is not None and not track.postponed)
            track.reading, track.lowered = False, None

    def unread(self, tracks: Iterable[Track]) -> None:
        """A planned read did not come back: nothing is known."""
        for track in tracks:
            track.dirty, track.reading, track.lowered = True, False, None

    def progress(self, returned: int, accepted: int) -> None:
        """When a read brings mostly rows that wait, the next one takes longer strides."""
        if accepted * 4 < returned:
            self._stride = min(max(STRIDE, self._stride * 2), MAX_STRIDE)
        else:
            self._stride = 0
