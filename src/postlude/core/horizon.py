"""The horizon: the highest seq below which nothing can still appear.

An append takes its seq before it commits, so a row may become visible below rows that were read already. Every open
appender therefore has a bound: all its seqs lie above the last one that had been handed out before it was first seen.
"""

from __future__ import annotations

RESTORED = "-1/"
"""How the ids of prepared transactions begin after a restart of the server: they appended before, under other ids."""


class Horizon:
    """Feed it what the store says; `stable` only ever rises."""

    def __init__(self) -> None:
        self.stable = 0
        """Reads that start after the last `observe` see every row up to here."""
        self.last = 0
        self.is_known = False
        """Was the store asked at all?"""
        self._bounds: dict[str, int] = {}

    def observe(self, last: int, appenders: frozenset[str]) -> int:
        """Take in the last seq handed out, and the transactions that were appending at a *later* moment.

        Gives the seq above which rows may have appeared since the last time: what an appender that has ended by now
        may have committed, and what came after.
        """
        ended = [bound for appender, bound in self._bounds.items() if appender not in appenders]
        news_after = min([self.last, *ended])
        self._bounds = {
            one: self._bounds.get(one, self.stable if one.startswith(RESTORED) else self.last) for one in appenders
        }
        self.last = max(self.last, last)
        self.is_known = True
        self.stable = min([self.last, *self._bounds.values()])
        return news_after

    @property
    def is_settled(self) -> bool:
        """Nothing handed out so far can still appear."""
        return self.stable >= self.last
