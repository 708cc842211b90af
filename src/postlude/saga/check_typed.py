"""Start-up checks of typed sagas."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from postlude.core.event import fields_of, spec_of
from postlude.core.outcome import Err, Ok
from postlude.errors import UnknownEvent
from postlude.outbox.handlers import EventHandler
from postlude.saga.check_plain import hints_of, parts_of
from postlude.saga.checks import check_blocks, check_names, check_order, check_times, refuse
from postlude.saga.filling import missing_fields
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef, arguments_of, plain_id

Typed = SagaDef[Any, Any]
EVENTS = ("command", "success", "failure", "compensation", "compensated", "compensation_failed")


def check_typed(saga: Typed) -> None:
    trigger, id_type = arguments_of(type(saga))
    check_names(saga.name, saga.steps)
    if not saga.correlation_field:
        hint = "Say correlation_field=, the field that every event of the saga shares, such as order_id."
        refuse(saga.name, None, "nothing says whose its events are", hint)
    check_times(saga.name, saga.deadline, saga.steps)
    for step in saga.steps:
        _check_way(saga, step)
    check_order(saga.name, saga.steps, {step.name: step.compensation for step in saga.steps})
    check_blocks(saga.name, saga.steps)
    _check_id(saga, id_type)
    _check_event(saga, None, "its trigger", trigger, correlated=not saga.defines("extract_id"))
    for step in saga.steps:
        for word in EVENTS:
            if step.undo_is_said or word != "compensation":
                _check_event(saga, step, word, getattr(step, word))
        _check_replies(saga, step)
        if step.handler is not None:
            _check_handler(saga, step, step.handler)
            source_of(saga, step)
        _check_made(saga, step)


def source_of(saga: Typed, step: SagaStep) -> str | None:
    """The nearest step before it that brings the event its handler takes; None: the trigger does."""
    takes = handler_types(step.handler)[0]
    before = list(_before(saga, step))
    for earlier in reversed(before):
        if earlier.success is takes:
            return earlier.name
    trigger, _ = arguments_of(type(saga))
    if takes is not trigger:
        brought = ", ".join(cls.__name__ for cls in (trigger, *(one.success for one in before)) if cls is not None)
        refuse(
            saga.name,
            step.name,
            f"it is never reached: its handler takes {_name(takes)}, which nothing before it brings",
            f"Before it there are: {brought}.",
        )
    return None


def handler_types(handler: Any) -> tuple[Any, Any, Any] | tuple[None, None, None]:
    """In, success and failure of a handler class."""
    for parent in getattr(handler, "__mro__", ()):
        for one in getattr(parent, "__orig_bases__", ()):
            if typing.get_origin(one) is EventHandler:
                taken, success, failure = typing.get_args(one)
                return taken, success, failure
    return None, None, None


def _check_way(saga: Typed, step: SagaStep) -> None:
    ways = [word for word in ("handler", "command", "wait") if getattr(step, word) is not None]
    if len(ways) != 1:
        said = " and ".join(ways) if ways else "none of them"
        refuse(saga.name, step.name, f"it names {said}", "Say one: handler=, command= with topic=, or wait=.")
    if step.command is not None and not step.topic:
        refuse(saga.name, step.name, "its command has no topic", "Say topic=, where the participant listens.")
    if step.success is None:
        refuse(saga.name, step.name, "it names no success event", "Say success=, the event that ends it well.")
    _check_undo_replies(saga, step)


def _check_undo_replies(saga: Typed, step: SagaStep) -> None:
    """A participant's undo is replied to, and only that."""
    remote = step.command is not None and step.undo_is_said and step.compensation is not None
    if remote and step.compensated is None:
        refuse(
            saga.name,
            step.name,
            "its undo is a participant's, and nothing says when it is done",
            "Say compensated=, the reply that tells.",
        )
    if not remote and (step.compensated or step.compensation_failed):
        refuse(
            saga.name,
            step.name,
            "it names replies to an undo that no participant is asked for",
            "compensated= and compensation_failed= go with command= and compensation=.",
        )


def _check_id(saga: Typed, id_type: Any) -> None:
    own = saga.defines("serialize_id") and saga.defines("deserialize_id")
    if not own and plain_id(id_type) is None:
        refuse(
            saga.name,
            None,
            f"ids of type {_name(id_type)} cannot be written",
            "Define serialize_id and deserialize_id; str, int and UUID need none.",
        )


def _check_event(saga: Typed, step: SagaStep | None, word: str, cls: Any, *, correlated: bool = True) -> None:
    if cls is None:
        return
    where = None if step is None else step.name
    try:
        spec_of(cls)
    except UnknownEvent:
        refuse(saga.name, where, f"{word} {_name(cls)} is no event class", "Decorate it with @event.")
    fields = fields_of(cls)
    if correlated and saga.correlation_field not in fields:
        refuse(
            saga.name,
            where,
            f"{word} {_name(cls)} has no field {saga.correlation_field!r} to tell whose it is",
            f"Every event of a saga has its correlation_field; this one has {', '.join(sorted(fields))}.",
        )


def _check_replies(saga: Typed, step: SagaStep) -> None:
    replies = [cls for cls in (step.success, step.failure, step.compensated, step.compensation_failed) if cls]
    types_ = [spec_of(cls).type for cls in replies]
    if len(set(types_)) < len(types_):
        refuse(saga.name, step.name, "one event type means two things", "Give each outcome an event of its own.")
    if step.block is None or step.handler is not None:
        return
    for other in saga.steps:
        shared = other is not step and other.block == step.block and other.handler is None
        if shared and spec_of(other.success).type in types_:
            refuse(
                saga.name,
                step.name,
                f"{other.name} in the same block is ended by the same event {_name(other.success)}",
                "It could not be told whose it is: give each branch an event of its own.",
            )


def _check_handler(saga: Typed, step: SagaStep, handler: Any) -> None:
    if not (isinstance(handler, type) and issubclass(handler, EventHandler)):
        refuse(saga.name, step.name, f"{_name(handler)} is no EventHandler class", "Give the class, not an instance.")
    taken, success, failure = handler_types(handler)
    if taken is None or isinstance(taken, typing.TypeVar):
        refuse(
            saga.name,
            step.name,
            f"handler {_name(handler)} does not say what it takes and returns",
            "Subclass EventHandler[In, Success, Failure].",
        )
    annotated = list(_annotated(handler))
    for word, wrapper, declared in (("success", Ok, success), ("failure", Err, failure)):
        said = getattr(step, word)
        returned = [cls for outer, cls in annotated if outer is wrapper]
        for other in (None if declared is types.NoneType else declared, *returned):
            if other is not said and not _is_nothing(other, said):
                refuse(
                    saga.name,
                    step.name,
                    f"handler {_name(handler)} returns {wrapper.__name__}[{_name(other)}], "
                    f"and the step's {word} is {_name(said)}",
                    f"Make {word}= and the handler's types agree.",
                )


def _is_nothing(declared: Any, said: Any) -> bool:
    return said is None and declared in (None, typing.Never, typing.NoReturn)


def _annotated(handler: Any) -> Iterator[tuple[Any, Any]]:
    """(Ok or Err, event class) of what handle() is annotated with."""
    for part in parts_of(hints_of(handler.handle).get("return")):
        arguments = typing.get_args(part)
        if typing.get_origin(part) in (Ok, Err) and isinstance(arguments[0], type):
            yield typing.get_origin(part), arguments[0]


def _check_made(saga: Typed, step: SagaStep) -> None:
    """Commands and compensations that the saga does not make itself must be made of what is known by then."""
    trigger, _ = arguments_of(type(saga))
    known = [trigger, *(one.success for one in _before(saga, step))]
    undo = step.compensation if step.undo_is_said else None
    for word, cls, hook, sources in (
        ("command", step.command, "on_command", known),
        ("compensation", undo, "on_compensate", [trigger]),
    ):
        if cls is None or saga.defines(hook):
            continue
        missing = missing_fields(cls, [source for source in sources if source is not None])
        if missing - {saga.correlation_field}:
            refuse(
                saga.name,
                step.name,
                f"{word} {_name(cls)} needs {', '.join(sorted(missing))}, which no event before it has",
                f"Define {hook}, or give the fields defaults: an undo may have to do without the step's result.",
            )


def _before(saga: Typed, step: SagaStep) -> Iterator[SagaStep]:
    """The steps of earlier stages."""
    for earlier in saga.steps:
        if earlier is step or (step.block is not None and earlier.block == step.block):
            return
        yield earlier


def _name(cls: Any) -> str:
    return getattr(cls, "__name__", None) or repr(cls)
