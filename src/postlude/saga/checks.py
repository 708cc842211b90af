"""Checks that both styles share. Each refusal names the saga and the step, and says what to do."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from itertools import groupby
from typing import Any, NoReturn, Protocol

from postlude.core.retry import Retry
from postlude.errors import ConfigurationError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
NAMING = "Use letters, digits, _ . - and at most 128 characters."
KINDS = ("compensatable", "pivot", "retriable")


class AnyStep(Protocol):
    """What the styles' steps have in common."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def block(self) -> str | None: ...
    @property
    def deadline(self) -> timedelta | None: ...
    @property
    def retry(self) -> Retry | None: ...
    @property
    def undo_is_said(self) -> bool: ...


def refuse(saga: str, step: str | None, what: str, hint: str) -> NoReturn:
    where = f"saga {saga}" if step is None else f"saga {saga}, step {step}"
    raise ConfigurationError(f"{where}: {what}", hint=hint)


def check_names(saga: Any, steps: tuple[AnyStep, ...]) -> None:
    if not isinstance(saga, str) or not NAME.fullmatch(saga):
        raise ConfigurationError(f"{saga!r} is not a saga name", hint=NAMING)
    if not steps:
        refuse(saga, None, "it has no steps", "Name at least one.")
    for step in steps:
        if not NAME.fullmatch(step.name):
            refuse(saga, step.name or "(unnamed)", f"{step.name!r} is not a step name", f"Give name=. {NAMING}")
    for name, count in Counter(step.name for step in steps).items():
        if count > 1:
            refuse(saga, name, f"there are {count} steps of this name", "Give each a name of its own.")


def check_times(saga: str, deadline: Any, steps: tuple[AnyStep, ...]) -> None:
    for name, given in ((None, deadline), *((step.name, step.deadline) for step in steps)):
        if given is not None and (not isinstance(given, timedelta) or given <= timedelta(0)):
            refuse(saga, name, f"{given!r} is no deadline", "Give a timedelta longer than zero, or none.")
    for step in steps:
        if step.retry is not None and not isinstance(step.retry, Retry):
            refuse(saga, step.name, f"{step.retry!r} says not how to retry", "Give retry=Retry(max_attempts=5).")


def check_order(saga: str, steps: tuple[AnyStep, ...], undo_of: dict[str, Any]) -> None:
    """Compensatable steps, then the pivot, then retriable ones."""
    pivot: str | None = None
    for step in steps:
        if step.kind is not None and step.kind not in KINDS:
            refuse(saga, step.name, f"{step.kind!r} is no kind of step", f"The kinds are {', '.join(KINDS)}.")
        if pivot is None:
            pivot = _check_before(saga, step)
        else:
            _check_after(saga, step, pivot, undo_of)


def _check_before(saga: str, step: AnyStep) -> str | None:
    if step.kind == "retriable":
        refuse(
            saga,
            step.name,
            "it is retriable and no pivot stands before it",
            "Before the pivot a step can be undone: make it compensatable, or name a pivot before it.",
        )
    if not step.undo_is_said:
        refuse(
            saga,
            step.name,
            "it does not say how it is undone",
            "Name its undo (compensation= of a typed, undo= of a plain step); None says that there is nothing to undo.",
        )
    return step.name if step.kind == "pivot" else None


def _check_after(saga: str, step: AnyStep, pivot: str, undo_of: dict[str, Any]) -> None:
    if step.kind == "pivot":
        refuse(saga, step.name, f"{pivot} is the pivot already", "A saga has one point of no return.")
    undoable = step.undo_is_said and undo_of[step.name] is not None
    if step.kind == "compensatable" or undoable:
        refuse(
            saga,
            step.name,
            f"it is compensatable and stands after the pivot {pivot}",
            "After the pivot there is no way back: move the step before it, or drop the undo and make it retriable.",
        )


def check_blocks(saga: str, steps: tuple[AnyStep, ...]) -> None:
    seen: set[str] = set()
    for block, run in groupby(steps, key=lambda step: step.block):
        members = list(run)
        if block is None:
            continue
        if block in seen:
            refuse(
                saga,
                members[0].name,
                f"block {block} was begun before and is interrupted",
                "Put the steps of a block one after another, or name another block.",
            )
        seen.add(block)
        for step in members:
            if step.kind == "pivot":
                refuse(
                    saga,
                    step.name,
                    f"the pivot cannot stand in block {block}",
                    "What runs beside it could not be undone any more: put the pivot before or after the block.",
                )
