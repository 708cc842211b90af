"""Plain sagas: durable functions with their undos, and no events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import msgspec

from postlude.core.outcome import Err, Ok
from postlude.core.retry import Retry
from postlude.saga.step import UNSAID, KindName

S = TypeVar("S")
Action = Callable[[S, Any], Awaitable[Ok[Any] | Err[str]]]
"""async (state, ctx). A value of the state's class becomes the new state."""
Undo = Callable[[S, Any], Awaitable[Ok[Any] | Err[str] | None]]
"""async (state, ctx); ctx.result is what the action returned, None when nobody knows."""


class StepOptions(TypedDict, total=False):
    """How a plain step runs. A step that calls out is not transactional."""

    name: str
    deadline: timedelta
    retry: Retry
    transactional: bool


class PlainStep(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A function of a plain saga with its undo."""

    name: str
    action: Callable[..., Any]
    undo: Callable[..., Any] | None
    kind: KindName | None = None
    block: str | None = None
    deadline: timedelta | None = None
    retry: Retry | None = None
    transactional: bool = True

    @property
    def undo_is_said(self) -> bool:
        return self.undo is not UNSAID


def step(action: Action[S], *, undo: Undo[S] | None = UNSAID, **options: Unpack[StepOptions]) -> PlainStep[S]:
    """A branch of `parallel`."""
    return _made(action, undo, None, options)


class Saga(Generic[S]):
    """Each call gives a new saga with one more step; the one before is as it was."""

    def __init__(self, name: str, *, state: type[S], deadline: timedelta | None = None) -> None:
        self.name = name
        self.state = state
        self.deadline = deadline
        self.steps: tuple[PlainStep[S], ...] = ()

    def step(self, action: Action[S], *, undo: Undo[S] | None = UNSAID, **options: Unpack[StepOptions]) -> Saga[S]:
        """Before the pivot the undo must be named, if only as None; after it there is none."""
        return self._with(_made(action, undo, None, options))

    def parallel(self, *steps: PlainStep[S]) -> Saga[S]:
        """Steps that run side by side; what comes next waits for all of them."""
        block = f"parallel_{len({one.block for one in self.steps if one.block}) + 1}"
        return self._with(*(msgspec.structs.replace(one, block=block) for one in steps))

    def pivot(self, action: Action[S], *, undo: Undo[S] | None = None, **options: Unpack[StepOptions]) -> Saga[S]:
        """The point of no return: once it has succeeded the saga only goes forward."""
        return self._with(_made(action, undo, "pivot", options))

    def _with(self, *steps: PlainStep[S]) -> Saga[S]:
        longer = Saga(self.name, state=self.state, deadline=self.deadline)
        longer.steps = (*self.steps, *steps)
        return longer


def _made(action: Any, undo: Any, kind: KindName | None, options: StepOptions) -> PlainStep[Any]:
    return PlainStep(
        name=str(options.get("name") or getattr(action, "__name__", "")),
        action=action,
        undo=undo,
        kind=kind,
        deadline=options.get("deadline"),
        retry=options.get("retry"),
        transactional=options.get("transactional", True),
    )
