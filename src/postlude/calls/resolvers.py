"""Resolvers: the foreign systems that an app can call about a data subject."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from postlude.core.calls import PREFIX, CallOperation
from postlude.core.retry import Retry
from postlude.errors import ConfigurationError
from postlude.outbox.routes import Routes

OWN = "postlude"
"""The name under which our own tables are erased."""
METHODS = {
    "erase_subject": "ref, *, idempotency_key",
    "schedule_erasure": "ref, *, idempotency_key",
    "rectify_subject": "ref, corrections, *, idempotency_key",
    "verify_absent": "ref",
}
"""What a resolver may have, and what each is called with."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Registered(msgspec.Struct, frozen=True):
    """A resolver and how it is called: seconds a call, calls at a time and calls a second, in each worker."""

    resolver: Any
    timeout: float
    concurrency: int
    rate: float | None

    @property
    def name(self) -> str:
        return str(self.resolver.name)

    @property
    def destination(self) -> str:
        return PREFIX + self.name

    def can(self, method: str) -> bool:
        return callable(getattr(self.resolver, method, None))

    def method(self, operation: CallOperation) -> str:
        """A vendor that can only let data expire is never asked to erase it."""
        if operation is CallOperation.rectify:
            return "rectify_subject"
        return "schedule_erasure" if self.can("schedule_erasure") else "erase_subject"


class Resolvers:
    """Known by name; a reference goes to the resolver whose name is its kind."""

    def __init__(self, routes: Routes, retry: Retry) -> None:
        self._routes = routes
        self._retry = retry
        self._registered: dict[str, Registered] = {}

    def register(self, resolver: Any, *, timeout: float = 30, concurrency: int = 8, rate: float | None = None) -> None:
        """Call it for references of its name. `rate` is calls a second; like `concurrency`, in each worker."""
        if getattr(resolver, "name", None) == OWN:
            raise ConfigurationError(f"the name {OWN!r} belongs to Postlude's own tables", hint="Choose another one.")
        self.add(Registered(resolver, timeout, concurrency, rate))

    def add(self, made: Registered) -> None:
        _check(made)
        if made.name in self._registered:
            raise ConfigurationError(
                f"there are two resolvers named {made.name!r}", hint="Each foreign system has a name of its own."
            )
        self._registered[made.name] = made
        self._routes.subscribe([], made.destination, lambda _: self._retry)

    def get(self, name: str) -> Registered | None:
        return self._registered.get(name)

    def names(self) -> list[str]:
        """Of the foreign systems, without our own tables."""
        return sorted(self._registered.keys() - {OWN})

    @property
    def retry(self) -> Retry:
        return self._retry

    def __iter__(self) -> Iterator[Registered]:
        return iter(self._registered.values())


def _check(made: Registered) -> None:
    resolver, name = made.resolver, getattr(made.resolver, "name", None)
    what = type(resolver).__name__
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} has no usable name", hint="Give it name = 'vendor': letters, digits and . _ - (200 at most)."
        )
    if not (made.can("erase_subject") or made.can("schedule_erasure")):
        raise ConfigurationError(
            f"resolver {name!r} can neither erase nor schedule an erasure",
            hint="Write async def erase_subject(self, ref, *, idempotency_key) -> Erasure.",
        )
    for method in filter(made.can, METHODS):
        _check_method(name, method, getattr(resolver, method))
    if made.timeout <= 0 or made.concurrency < 1 or (made.rate is not None and made.rate <= 0):
        raise ConfigurationError(f"timeout, concurrency and rate of resolver {name!r} must be above zero")


def _check_method(name: str, method: str, function: Any) -> None:
    """Else it would be found out by the first call, and again at each of its attempts."""
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{method} of resolver {name!r} is no coroutine function",
            hint="Write async def; a blocking client belongs into asyncio.to_thread.",
        )
    placed, _, named = METHODS[method].partition(", *, ")
    try:
        inspect.signature(function).bind(*placed.split(", "), **dict.fromkeys(filter(None, [named])))
    except TypeError:
        raise ConfigurationError(
            f"{method} of resolver {name!r} does not take what it is given",
            hint=f"Write async def {method}(self, {METHODS[method]}).",
        ) from None
