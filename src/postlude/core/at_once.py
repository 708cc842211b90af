"""Coroutines that never wait, run without an event loop: one path serves sync and async handles."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine in which nothing suspends, because every handle it touches is a sync one."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a handle that was taken for a sync one waited for an event loop, and there is none here")
