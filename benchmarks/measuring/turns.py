"""Sides take turns, so that what disturbs the machine disturbs both."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable

Side = Callable[[], Awaitable[float]]


async def take_turns(turn: int, ours: Side, theirs: Side) -> tuple[float, float]:
    """Both sides once; in every second turn the other one goes first."""
    if turn % 2:
        second = await theirs()
        return await ours(), second
    return await ours(), await theirs()


def tidy() -> None:
    """Nobody pays for the garbage of what came before."""
    gc.collect()


def say(message: str) -> None:
    """Progress is for people; standard output belongs to the report."""
    print(f"bench: {message}", file=sys.stderr, flush=True)
