"""What an app says once, for all its databases."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from postlude.calls.resolvers import Resolvers
from postlude.core.calls import AbandonedSignal
from postlude.inbox.interpreting import Mapped
from postlude.outbox.routes import Routes
from postlude.privacy.keyring import KeyRing
from postlude.runtime.watchers import Hook
from postlude.saga.applying import Stuck
from postlude.saga.registry import Registry
from postlude.settings import Settings


class SystemClock:
    """Real time and real chance."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic()

    def chance(self) -> float:
        return random.random()  # noqa: S311 - jitter is no secret


class Declared(msgspec.Struct):
    """Routes, handlers and sagas, hooks, brokers, time."""

    settings: Settings
    routes: Routes
    hooks: list[Hook]
    broker: Callable[[str], Any]
    clock: Any
    sagas: Registry
    resolvers: Resolvers
    call_hooks: list[Callable[[AbandonedSignal], None]] = msgspec.field(default_factory=list)
    keys: KeyRing | None = None
    stuck_hooks: list[Callable[[Stuck], None]] = msgspec.field(default_factory=list)
    foreign: dict[tuple[str, str], Mapped] = msgspec.field(default_factory=dict)
    """Mappings of what is no CloudEvent, by broker and topic."""
