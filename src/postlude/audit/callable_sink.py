"""A copy of the chain wherever a function puts it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeGuard

from postlude.core.audit_chain import AuditRecord
from postlude.errors import ConfigurationError
from postlude.ports.audit import AuditSink

Take = Callable[[Sequence[AuditRecord]], Awaitable[None] | None]


class CallableAuditSink:
    """A coroutine function is awaited; any other runs in a thread, so that it may block."""

    def __init__(self, take: Take) -> None:
        self._take = take

    async def append(self, records: Sequence[AuditRecord]) -> None:
        if inspect.iscoroutinefunction(self._take):
            await self._take(records)
        else:
            await asyncio.to_thread(self._take, records)


def sink_of(given: AuditSink | Take) -> AuditSink:
    if _is_sink(given):
        return given
    if callable(given):
        return CallableAuditSink(given)
    raise ConfigurationError(
        f"{type(given).__name__} is no audit sink", hint="Give it `async def append(self, records)`, or a function."
    )


def _is_sink(given: object) -> TypeGuard[AuditSink]:
    return inspect.iscoroutinefunction(getattr(given, "append", None))
