"""Notices when a coroutine waits for something."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any


class Suspension:
    """Awaits a coroutine and calls `noticed` when it suspends for the first time.

    On SQLite a handler that waits inside its transaction holds the only writer: worth a warning.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], noticed: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._noticed = noticed

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        try:
            waits_for = next(inner)
        except StopIteration as end:
            return end.value
        self._noticed()
        return (yield from _after(waits_for, inner))


def _after(waits_for: Any, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The rest of a generator whose first step was taken already."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - handed on to the coroutine, cancellation included
            step = partial(inner.throw, error)
        else:
            step = partial(inner.send, value)
        try:
            waits_for = step()
        except StopIteration as end:
            return end.value
