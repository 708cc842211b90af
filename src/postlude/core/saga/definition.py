"""What a saga is made of, however it was declared: steps in order, some of them side by side in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from itertools import groupby

import msgspec

from postlude.core.retry import Retry


class Kind(StrEnum):
    """Can the step be undone, is it the point of no return, or must it succeed in the end?"""

    compensatable = "compensatable"
    pivot = "pivot"
    retriable = "retriable"


class Way(StrEnum):
    """Who does it: code of this app, a participant that is sent a command and replies, or somebody we wait for."""

    handler = "handler"
    command = "command"
    wait = "wait"


class Replies(msgspec.Struct, frozen=True, omit_defaults=True):
    """Types of the events that end a step or its undo; None where a step says nothing."""

    success: str | None = None
    failure: str | None = None
    compensated: str | None = None
    compensation_failed: str | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One step. `takes` names the earlier step whose result it is given; None: what the saga was started with."""

    name: str
    kind: Kind = Kind.compensatable
    way: Way = Way.handler
    undo: Way | None = None
    block: str | None = None
    takes: str | None = None
    replies: Replies = Replies()
    deadline: float | None = None
    """Seconds; a remote undo has as long."""
    retry: Retry | None = None

    @cached_property
    def shape(self) -> str:
        """What must stay as it is for an instance that has begun this step. Times and retries may change."""
        return _hash(self.name, self.kind, self.way, self.undo, self.block, self.takes, self.replies)


class Definition(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A saga. Whoever makes one has checked it (`saga.checks`)."""

    name: str
    steps: tuple[Step, ...]
    deadline: float | None = None
    reports_late: bool = False
    """Is the saga told of a signal that comes after its end?"""

    @cached_property
    def hash(self) -> str:
        """The same in every process; another one when an instance might not be able to go on."""
        return _hash(self.name, *(step.shape for step in self.steps))

    @cached_property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """Indexes of the steps that run together: one, or those of a block."""
        runs = groupby(enumerate(self.steps), key=lambda item: item[1].block or item[0])
        return tuple(tuple(index for index, _ in run) for _, run in runs)

    @cached_property
    def stage_of(self) -> tuple[int, ...]:
        """The stage of each step, by index."""
        return tuple(number for number, stage in enumerate(self.stages) for _ in stage)

    @cached_property
    def index(self) -> dict[str, int]:
        return {step.name: number for number, step in enumerate(self.steps)}

    @cached_property
    def pivot(self) -> int | None:
        """The index of the pivot, if there is one."""
        return next((number for number, step in enumerate(self.steps) if step.kind is Kind.pivot), None)

    def __getitem__(self, name: str) -> Step:
        return self.steps[self.index[name]]


def _hash(*parts: object) -> str:
    return sha256(msgspec.json.encode(_plain(parts))).hexdigest()[:16]


def _plain(parts: Iterable[object]) -> list[object]:
    return [msgspec.to_builtins(part) for part in parts]
