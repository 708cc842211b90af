"""An event loop for the time of one call, for code that has none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from postlude.errors import ConfigurationError

T = TypeVar("T")


class Life(Protocol):
    """What has to be started, can work off what is due, and is closed again."""

    @property
    def is_started(self) -> bool: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def run_once(self, limit: int | None = None) -> int: ...
    async def drain(self, timeout: float = 30) -> int: ...


class OwnLoop:
    """It lasts just as long as the call, and leaves no connection behind."""

    def __init__(self, life: Life) -> None:
        self.life = life

    def finish(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self.life.is_started:
            raise ConfigurationError(
                "this app runs in an event loop already", hint="Use the methods of app there, with await."
            )
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise ConfigurationError(
                "app.sync was called from inside an event loop", hint="Await the same method of app instead."
            )

        async def inside() -> T:
            try:
                return await work()
            finally:
                await self.life.close()

        return asyncio.run(inside())
