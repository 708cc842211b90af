"""Start-up checks of plain sagas."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from postlude.core.outcome import Err, Ok
from postlude.saga.checks import check_blocks, check_names, check_order, check_times, refuse
from postlude.saga.plain import PlainStep, Saga

SHAPE = "Write `async def action(state, ctx) -> Ok[...] | Err[str]`."


def check_plain(saga: Saga[Any]) -> None:
    check_names(saga.name, saga.steps)
    if not isinstance(saga.state, type):
        refuse(saga.name, None, f"{saga.state!r} is no class", "Give state= the class of the saga's state.")
    check_times(saga.name, saga.deadline, saga.steps)
    check_order(saga.name, saga.steps, {step.name: step.undo for step in saga.steps})
    check_blocks(saga.name, saga.steps)
    for step in saga.steps:
        _check_function(saga, step, step.action, "action")
        if step.undo_is_said and step.undo is not None:
            _check_function(saga, step, step.undo, "undo")


def _check_function(saga: Saga[Any], step: PlainStep[Any], function: Callable[..., Any], what: str) -> None:
    called = getattr(function, "__name__", repr(function))
    if not inspect.iscoroutinefunction(function):
        refuse(saga.name, step.name, f"its {what} {called} is no async function", SHAPE)
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(parameters) != 2:
        refuse(saga.name, step.name, f"its {what} {called} takes {len(parameters)} parameters, not (state, ctx)", SHAPE)
    hints = hints_of(function)
    taken = hints.get(parameters[0].name)
    if isinstance(taken, type) and not issubclass(saga.state, taken):
        refuse(
            saga.name,
            step.name,
            f"its {what} {called} takes {taken.__name__}, and the saga's state is {saga.state.__name__}",
            "One state serves all steps of a saga.",
        )
    if "return" in hints and not _fits(hints["return"], nothing=what == "undo"):
        refuse(saga.name, step.name, f"its {what} {called} declares to return neither Ok nor Err", SHAPE)


def _fits(declared: Any, *, nothing: bool) -> bool:
    parts = parts_of(declared)
    allowed = {Ok, Err, types.NoneType} if nothing else {Ok, Err}
    return all(part is Any or (typing.get_origin(part) or part) in allowed for part in parts)


def parts_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union; a type of its own."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        # Annotations that cannot be resolved here (local classes, TYPE_CHECKING imports) declare nothing.
        return {}
