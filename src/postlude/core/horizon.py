"""The horizon: the highest seq below which nothing can still appear.

An append takes its seq before it commits, so a row may become visible below rows that were read already. A reader
may forget what lies below a seq only when every transaction that was appending at that time has ended.
"""

from __future__ import annotations


class Horizon:
    """Feed it what the store says; `stable` only ever rises."""

    def __init__(self) -> None:
        self.stable = 0
        self.last = 0
        self._candidate: tuple[int, frozenset[str]] | None = None

    def observe(self, last: int, appenders: frozenset[str]) -> None:
        """Take in the last seq handed out, and the transactions that were appending at a *later* moment.

        Reads that start after this see every row up to `stable`.
        """
        self.last = max(self.last, last)
        if self._candidate is not None:
            seq, waiting = self._candidate
            waiting &= appenders
            self._candidate = (seq, waiting) if waiting else None
            if not waiting:
                self.stable = max(self.stable, seq)
        if self._candidate is None and last > self.stable:
            if appenders:
                self._candidate = (last, appenders)
            else:
                self.stable = last

    @property
    def is_settled(self) -> bool:
        """Nothing handed out so far can still appear."""
        return self.stable >= self.last
