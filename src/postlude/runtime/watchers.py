"""Who is told when something happens: dead-letter hooks, counters. Their errors and slowness touch nothing else."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Verdict
from postlude.core.lifecycle import Status
from postlude.core.outcome import Fault
from postlude.ports.upkeep import DutyRun
from postlude.runtime.telling import Telling

log = logging.getLogger("postlude.watchers")


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

    def __init__(self, hooks: list[Hook], noticed: Hook | None = None) -> None:
        """`noticed` is ours: called at once, on the event loop."""
        self._telling = Telling("dead-letter", hooks, lambda letter: letter.event_id)
        self._noticed = noticed
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def settled(self, destination: str, deliveries: list[Delivery]) -> None:
        self.counts[f"sent:{destination}"] += len(deliveries)

    def recorded(self, destination: str, verdicts: list[tuple[Delivery, Verdict]]) -> None:
        for delivery, verdict in verdicts:
            self.counts[f"{verdict.status}:{destination}"] += 1
            if verdict.status is Status.dead:
                fault = msgspec.json.decode(verdict.error, type=Fault) if verdict.error else None
                self._tell(delivery, destination, verdict.attempts, fault)

    def died(self, destination: str, delivery: Delivery, fault: Fault) -> None:
        """The destination made a dead letter of it."""
        self.counts[f"{Status.dead}:{destination}"] += 1
        attempts = delivery.attempts + (0 if delivery.started else 1)
        self._tell(delivery, destination, attempts, fault)

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
        self._telling.close(timeout)

    def _tell(self, delivery: Delivery, destination: str, attempts: int, fault: Fault | None) -> None:
        # A message is for whoever asked to have it kept; the log may go anywhere.
        place = fault.place if fault else None
        log.error("dead letter: event %s for %s after %d attempts: %s", delivery.event_id, destination, attempts, place)
        letter = DeadLetter(delivery.event_id, destination, delivery.key, attempts, str(fault) if fault else None)
        self._telling.tell(letter)
        if self._noticed is not None:
            self._noticed(letter)
