"""What comes of trying: results of handlers, outcomes of deliveries, and the verdict that follows from them."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from postlude.core.delivery import Delivery, StoredEvent, Verdict
from postlude.core.lifecycle import Status, blocks
from postlude.core.retry import Retry

T = TypeVar("T")

POISON_STARTS = 3
"""After a crash: how often an entry may be started without an outcome before it is taken for the cause."""


class Ok(msgspec.Struct, Generic[T], frozen=True):
    """The handler did it; the event, if any, is appended."""

    value: T

    @property
    def event(self) -> T:
        return self.value


class Err(msgspec.Struct, Generic[T], frozen=True):
    """The handler could not, as foreseen: its writes are rolled back, the event is appended."""

    value: T

    @property
    def event(self) -> T:
        return self.value


class Reject(Exception):
    """Raise it in a handler: a dead letter now, without further attempts."""


class Park(Exception):
    """Raise it in a handler: try again at that time, with a fresh budget of attempts."""

    def __init__(self, *, until: datetime) -> None:
        if until.tzinfo is None:
            raise ValueError("until needs a time zone")
        super().__init__(f"parked until {until.isoformat()}")
        self.until = until


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it is stored: what and where; the message only by opt-in, for it may hold personal data."""

    kind: str
    code: str | None = None
    at: str | None = None
    message: str | None = None

    @property
    def place(self) -> str:
        """What and where, without the message: for the log."""
        text = f"{self.kind} ({self.code})" if self.code else self.kind
        return f"{text} at {self.at}" if self.at else text

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.message else self.place


class Sent(msgspec.Struct, frozen=True):
    """Confirmed by the destination; not yet settled."""


class Settled(msgspec.Struct, frozen=True):
    """Confirmed and settled in one transaction by the destination itself."""

    followed_by: tuple[tuple[Delivery, StoredEvent], ...] = ()
    """What that transaction brought for the same destination, without a key: it need not be read to be known."""


class Died(msgspec.Struct, frozen=True):
    """A dead letter already, made by the destination itself in a transaction of its own."""

    fault: Fault


class Postponed(msgspec.Struct, frozen=True):
    """Scheduled already, by the destination itself in a transaction of its own."""


class Failed(msgspec.Struct, frozen=True):
    """The entry failed; it is tried again while attempts are left."""

    fault: Fault


class Rejected(msgspec.Struct, frozen=True):
    """The entry can never succeed: a dead letter now."""

    fault: Fault


class Parked(msgspec.Struct, frozen=True):
    """Not before that time."""

    until: datetime


class Unavailable(msgspec.Struct, frozen=True):
    """The destination failed, not the entry: no attempt is burned, the destination is paused with backoff."""

    fault: Fault


class Held(msgspec.Struct, frozen=True):
    """Not tried, or not finished, for a reason outside the entry: read it again later, in its place."""


Outcome = Sent | Settled | Died | Postponed | Failed | Rejected | Parked | Unavailable | Held
SENT = Sent()
SETTLED = Settled()
POSTPONED = Postponed()
HELD = Held()


class Policy(msgspec.Struct, frozen=True):
    """How failures of one event type are treated."""

    retry: Retry = Retry()
    on_dead_blocks: bool = False


def judge(delivery: Delivery, outcome: Failed | Rejected | Parked, policy: Policy, *, chance: float = 0.5) -> Verdict:
    """The verdict on a delivery that was tried and not sent."""
    if isinstance(outcome, Parked):
        return _verdict(delivery, Status.scheduled, 0, until=outcome.until)
    attempts = delivery.attempts if delivery.started else delivery.attempts + 1
    exhausted = policy.retry.is_exhausted(attempts, max_attempts=delivery.max_attempts)
    if isinstance(outcome, Rejected) or exhausted:
        holds = blocks(Status.dead, delivery.key, on_dead_blocks=policy.on_dead_blocks)
        return _verdict(delivery, Status.dead, attempts, fault=outcome.fault, holds=holds)
    holds = blocks(Status.failed, delivery.key)
    delay = policy.retry.delay(attempts, chance=chance).total_seconds()
    return _verdict(delivery, Status.failed, attempts, fault=outcome.fault, holds=holds, delay=delay)


def give_back(delivery: Delivery) -> Verdict:
    """The verdict on a delivery that was started but not tried: as if it had not been started."""
    holds = blocks(Status.failed, delivery.key)
    return _verdict(delivery, Status.failed, delivery.attempts - 1, holds=holds)


def is_poison(delivery: Delivery) -> bool:
    """Did this entry take its worker down too often?"""
    return delivery.starts >= POISON_STARTS


def _verdict(
    delivery: Delivery,
    status: Status,
    attempts: int,
    *,
    fault: Fault | None = None,
    holds: bool = False,
    delay: float = 0.0,
    until: datetime | None = None,
) -> Verdict:
    return Verdict(
        seq=delivery.seq,
        lane=delivery.lane,
        was_status=delivery.status,
        was_attempts=delivery.attempts,
        status=status,
        attempts=attempts,
        blocks=holds,
        delay=delay,
        until=until,
        error=None if fault is None else msgspec.json.encode(fault).decode(),
    )
