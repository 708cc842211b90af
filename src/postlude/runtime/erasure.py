"""Tells the hooks of abandoned calls, after the fact is durable. Their errors and slowness touch nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from postlude.core.calls import PREFIX, AbandonedSignal
from postlude.core.lifecycle import Status
from postlude.erasure.views import call_of
from postlude.errors import PostludeError
from postlude.ports.calls import Calls
from postlude.runtime.apart import apart
from postlude.runtime.telling import Telling
from postlude.runtime.watchers import DeadLetter

log = logging.getLogger("postlude.calls")


class Abandonments:
    def __init__(self, hooks: Sequence[Callable[[AbandonedSignal], None]], calls: Callable[[], Calls]) -> None:
        self._hooks = hooks
        self._calls = calls
        self._telling = Telling("abandoned call", hooks, lambda signal: signal.entry_id)
        self._looking: set[asyncio.Task[None]] = set()

    def notice(self, letter: DeadLetter) -> None:
        """A dead letter of a resolver is an abandoned call: who it is about is looked up beside the deliveries."""
        if self._hooks and letter.destination.startswith(PREFIX):
            task = asyncio.create_task(self._tell(letter))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def close(self) -> None:
        """Let the hooks finish what waits, within reason."""
        if self._looking:
            await asyncio.wait(self._looking, timeout=5)
        await apart(self._telling.close)

    async def _tell(self, letter: DeadLetter) -> None:
        try:
            found = await self._calls().calls(status=Status.dead, ids=[letter.event_id], limit=1)
        except PostludeError as error:
            log.warning("the hooks were not told of abandoned call %s: %s", letter.event_id, error.code)
            return
        for call in map(call_of, found):
            self._telling.tell(
                AbandonedSignal(
                    attempts=call.attempts,
                    entry_id=call.entry_id,
                    error=call.last_error or "Unknown",
                    operation=call.operation,
                    resolver=call.resolver,
                    subject_id=call.subject_id,
                )
            )
