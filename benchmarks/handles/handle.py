"""A kind of handle, and one that is open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, NamedTuple

import msgspec

from benchmarks.measuring.engine import OrderPlaced
from postlude import Postlude

DRIVER_AIM, LAYER_AIM = 0.8, 0.7
encode = msgspec.json.Encoder().encode
"""The raw sides' payloads: the fastest there is, which is also ours."""


class Transactions(NamedTuple):
    """Both write a business row and tell of it, and both commit: a call is a transaction."""

    ours: Callable[[OrderPlaced], Any]
    raw: Callable[[OrderPlaced], Any]


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    database: Literal["postgres", "sqlite"] = "postgres"
    aim: float = DRIVER_AIM
    waits: Callable[[str, Postlude], AbstractAsyncContextManager[Transactions]] | None = None
    """Opens one that belongs to an event loop."""
    blocks: Callable[[str, Postlude], AbstractContextManager[Transactions]] | None = None
    """Opens one that belongs to a thread."""
