"""Commands and compensations made of what a saga knows: each field from the last event that has one of its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from postlude.core.event import fields_of
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef


async def command_event(saga: SagaDef[Any, Any], id: Any, step: SagaStep, known: Sequence[object]) -> object:
    """The command of a remote step; `known` are the trigger and the events of the steps before it, in order."""
    made = await saga.on_command(id, step)
    return fill(saga, step.command, id, known) if made is None else made


async def compensation_event(
    saga: SagaDef[Any, Any], id: Any, step: SagaStep, known: Sequence[object]
) -> object | None:
    """The event that asks for a step's undo; `known` are the trigger and the step's own event, if there is one.
    None: the saga says that there is nothing to undo."""
    if saga.defines("on_compensate"):
        return await saga.on_compensate(id, step)
    return fill(saga, step.compensation, id, known)


def fill(saga: SagaDef[Any, Any], cls: Any, id: Any, known: Sequence[object]) -> object:
    values: dict[str, Any] = {}
    for source in known:
        values.update((name, getattr(source, name)) for name in fields_of(type(source)))
    values[saga.correlation_field] = id
    return cls(**{name: values[name] for name in fields_of(cls) if name in values})


def missing_fields(cls: type[Any], sources: Sequence[type[Any]]) -> set[str]:
    """Fields without a default that no source has."""
    return _required(cls) - {name for source in sources for name in fields_of(source)}


def _required(cls: type[Any]) -> set[str]:
    if issubclass(cls, msgspec.Struct):
        return {field.name for field in msgspec.structs.fields(cls) if field.required}
    if dataclasses.is_dataclass(cls):
        nothing = dataclasses.MISSING
        return {
            field.name
            for field in dataclasses.fields(cls)
            if field.default is nothing and field.default_factory is nothing
        }
    if hasattr(cls, "model_fields"):
        return {name for name, field in cls.model_fields.items() if field.is_required()}
    # attrs marks what has no default with a value of its own that is falsy only for the marker's class name.
    return {field.name for field in cls.__attrs_attrs__ if repr(field.default) == "NOTHING"}
