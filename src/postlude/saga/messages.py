"""What a saga sends to itself: its work and its deadlines, as events of one type; and ids that follow from others."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal
from uuid import NAMESPACE_OID, UUID, uuid5

import msgspec

from postlude.core.event import Event, event
from postlude.core.saga.decision import RunStep, RunUndo, ScheduleDeadline, SendCommand, SendUndo, Work
from postlude.core.saga.signal import DeadlinePassed
from postlude.core.uuid7 import uuid7

PREFIX = "saga:"
TYPE = "postlude.saga"
What = Literal["run", "send", "undo", "send_undo", "deadline"]
_WORK: dict[type[Work], What] = {RunStep: "run", SendCommand: "send", RunUndo: "undo", SendUndo: "send_undo"}


@event(type=TYPE, record_only=True)
class SagaMessage(Event, omit_defaults=True):
    """Results are not carried along: the instance has them."""

    what: What
    step: str | None = None
    attempt: int = 0
    key: str = ""
    undo: bool = False
    """Of a deadline."""

    @classmethod
    def read(cls, payload: bytes) -> SagaMessage:
        return msgspec.json.decode(payload, type=cls)

    def work(self) -> Work:
        step = self.step or ""
        match self.what:
            case "run":
                return RunStep(step, self.attempt, self.key)
            case "send":
                return SendCommand(step, self.attempt, self.key)
            case "undo":
                return RunUndo(step, self.attempt, self.key)
            case _:
                return SendUndo(step, self.attempt, self.key)

    def deadline(self) -> DeadlinePassed:
        return DeadlinePassed(self.step, self.attempt, self.undo)


def message_of(follow_up: Work | ScheduleDeadline) -> SagaMessage:
    if isinstance(follow_up, ScheduleDeadline):
        step, attempt = follow_up.step, follow_up.attempt
        return SagaMessage(what="deadline", step=step, attempt=attempt, undo=follow_up.undo)
    what, step = _WORK[type(follow_up)], follow_up.step
    return SagaMessage(what=what, step=step, attempt=follow_up.attempt, key=follow_up.key)


def destination_of(name: str) -> str:
    return PREFIX + name


def deadline_id(saga_id: UUID, step: str | None, attempt: int, *, undo: bool) -> UUID:
    """So that it can be cancelled without being looked for."""
    return derived(saga_id, "deadline", step or "", str(attempt), "undo" if undo else "")


def derived(source: UUID, *parts: str) -> UUID:
    """The same from the same. It has the time of its source, and with it the partition, where the source has one."""
    name = "\n".join(parts)
    if source.version != 7:
        return uuid5(NAMESPACE_OID, f"{source}\n{name}")
    digest = sha256(source.bytes + name.encode()).digest()
    return uuid7(source.int >> 80, int.from_bytes(digest[:10], "big"))
