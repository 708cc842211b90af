"""Who is told when something happens: dead-letter hooks, counters. Their errors and slowness touch nothing else."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Verdict
from postlude.core.lifecycle import Status
from postlude.core.outcome import Fault
from postlude.ports.store import DutyRun

log = logging.getLogger("postlude.watchers")
MAX_WAITING = 1000


class DeadLetter(msgspec.Struct, frozen=True):
    """An entry that will not be tried again until someone decides."""

    event_id: UUID
    destination: str
    key: str | None
    attempts: int
    error: str | None


Hook = Callable[[DeadLetter], None]


class Watchers:
    """Counts what a worker does and calls the hooks in a thread of their own, after the fact is durable."""

    def __init__(self, hooks: list[Hook]) -> None:
        self._hooks = hooks
        self._letters: queue.Queue[DeadLetter | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def settled(self, destination: str, deliveries: list[Delivery]) -> None:
        self.counts[f"sent:{destination}"] += len(deliveries)

    def recorded(self, destination: str, verdicts: list[tuple[Delivery, Verdict]]) -> None:
        for delivery, verdict in verdicts:
            self.counts[f"{verdict.status}:{destination}"] += 1
            if verdict.status is Status.dead:
                fault = msgspec.json.decode(verdict.error, type=Fault) if verdict.error else None
                self._tell(
                    DeadLetter(
                        delivery.event_id, destination, delivery.key, verdict.attempts, str(fault) if fault else None
                    )
                )

    def unavailable(self, destination: str) -> None:
        self.counts[f"unavailable:{destination}"] += 1

    def overtaken(self, destination: str, entries: int) -> None:
        self.counts[f"overtaken:{destination}"] += entries

    def duty(self, name: str, run: DutyRun) -> None:
        """A duty had its turn: `duty:retention:rows`, `:turns`, `:failures`, and its seconds."""
        self.counts[f"{name}:turns"] += 1
        self.counts[f"{name}:rows"] += run.rows
        self.counts[f"{name}:failures"] += run.error is not None
        self.seconds[f"{name}:seconds"] = self.seconds.get(f"{name}:seconds", 0.0) + run.seconds

    def close(self, timeout: float = 5.0) -> None:
        """Let the hooks finish what waits, within reason."""
        if self._thread is not None:
            self._letters.put(None)
            self._thread.join(timeout)
            self._thread = None

    def _tell(self, letter: DeadLetter) -> None:
        log.error(
            "dead letter: event %s for %s after %d attempts: %s",
            letter.event_id,
            letter.destination,
            letter.attempts,
            letter.error,
        )
        if not self._hooks:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._call_hooks, name="postlude-hooks", daemon=True)
            self._thread.start()
        try:
            self._letters.put_nowait(letter)
        except queue.Full:
            log.warning("the dead-letter hooks are too slow; event %s was not told", letter.event_id)

    def _call_hooks(self) -> None:
        while (letter := self._letters.get()) is not None:
            for hook in self._hooks:
                try:
                    hook(letter)
                except Exception:
                    log.exception("a dead-letter hook failed")
