"""What is to happen in each saga of the chaos test: it follows from its number, and so does how it has to end."""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec

Fate = Literal["ok", "flaky", "err", "reject"]
"""flaky: raises at its first attempt. err: says Err. reject: raises Reject, after what it did."""
FAILING_STEPS, FAILING_UNDOS, FLAKY = 0.20, 0.05, 0.05
STEPS = 4


class Script(msgspec.Struct, frozen=True):
    """The state of a plain saga, and part of the trigger of a typed one."""

    number: str
    steps: tuple[Fate, ...]
    undos: tuple[Fate, ...]


class Shape(msgspec.Struct, frozen=True):
    """A step of one of the sagas."""

    name: str
    calls_out: bool = False
    is_last_chance: bool = False
    """It has no undo: the pivot, and what comes after it."""
    is_retriable: bool = False


PLAIN, TYPED = "tour", "parcel"
SHAPES = {
    PLAIN: (Shape("flight"), Shape("hotel", calls_out=True), Shape("car"), Shape("insurance", calls_out=True)),
    TYPED: (
        Shape("reserve"),
        Shape("charge", calls_out=True),
        Shape("ship", is_last_chance=True),
        Shape("mail", calls_out=True, is_last_chance=True, is_retriable=True),
    ),
}


class End(msgspec.Struct, frozen=True):
    status: str
    error: str | None
    effects: tuple[str, ...]
    """All of them, in order."""


def script_of(seed: int, number: int) -> Script:
    random = Random(f"{seed} {number}")
    steps = tuple(_fate(random, FAILING_STEPS) for _ in range(STEPS))
    return Script(str(number), steps, tuple(_fate(random, FAILING_UNDOS) for _ in range(STEPS)))


def _fate(random: Random, failing: float) -> Fate:
    drawn = random.random()
    if drawn < failing:
        return random.choice(("err", "reject"))
    return "flaky" if drawn < failing + FLAKY else "ok"


def saga_of(number: int) -> str:
    return TYPED if number % 2 else PLAIN


def end_of(script: Script, saga: str) -> End:
    """As the documentation has it, not as the code does it."""
    effects: list[str] = []
    standing: list[tuple[int, str | None]] = []
    error = None
    for index, (shape, fate) in enumerate(zip(SHAPES[saga], script.steps, strict=True)):
        succeeds = fate in ("ok", "flaky")
        if succeeds or (shape.calls_out and fate == "reject"):
            effects.append(f"do {shape.name}")
            # Whoever raised after a call may have had its effect: it is undone, by whoever knows no result.
            standing.append((index, result_of(shape.name, script.number) if succeeds else None))
        if not succeeds:
            error = f"{shape.name}:{'Refused' if fate == 'err' else 'Reject'}"
            if shape.is_retriable:
                return End("stuck", error, tuple(effects))
            break
    if error is None:
        return End("completed", None, tuple(effects))
    return _way_back(script, saga, error, effects, standing)


def _way_back(script: Script, saga: str, error: str, effects: list[str], standing: list[tuple[int, str | None]]) -> End:
    for index, result in reversed(standing):
        shape, fate = SHAPES[saga][index], script.undos[index]
        if fate in ("ok", "flaky") or (shape.calls_out and fate == "reject"):
            effects.append(f"undo {shape.name}: {result}")
        if fate not in ("ok", "flaky"):
            return End("stuck", error, tuple(effects))
    return End("compensated", error, tuple(effects))


def result_of(step: str, number: str) -> str:
    return f"{step} of {number}"
