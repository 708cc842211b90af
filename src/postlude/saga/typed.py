"""Typed sagas: what starts one, whose process it is, its steps, and the events it tells the world of as a whole."""

from __future__ import annotations

import typing
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from postlude.errors import ConfigurationError
from postlude.saga.step import SagaStep

Trigger = TypeVar("Trigger")
Id = TypeVar("Id")
PLAIN_IDS = (str, int, UUID)


class SagaDef(Generic[Trigger, Id]):
    """Subclass it as `SagaDef[OrderPlaced, OrderId]`; name, correlation field and steps must be given."""

    name: ClassVar[str] = ""
    correlation_field: ClassVar[str] = ""
    """The field of every event of the saga that says which process it belongs to."""
    steps: ClassVar[tuple[SagaStep, ...]] = ()
    deadline: ClassVar[timedelta | None] = None

    def extract_id(self, event: Trigger) -> Id:
        found: Id = getattr(event, self.correlation_field)
        return found

    def serialize_id(self, id: Id) -> str:
        if isinstance(id, bool) or not isinstance(id, PLAIN_IDS):
            raise ConfigurationError(
                f"saga {self.name} cannot write an id of type {type(id).__name__}",
                hint="Define serialize_id and deserialize_id; str, int and UUID need none.",
            )
        return str(id)

    def deserialize_id(self, raw: str) -> Id:
        _, cls = arguments_of(type(self))
        made: Id = plain_id(cls)(raw)
        return made

    def process_id(self, event: object) -> str:
        """The process any event of the saga belongs to, as it is stored."""
        return self.serialize_id(getattr(event, self.correlation_field))

    async def on_completed(self, id: Id) -> object | None:  # noqa: ARG002 - for those who define it
        """The event that tells of the end; None: there is none."""
        return None

    async def on_failed(self, id: Id, error: str) -> object | None:  # noqa: ARG002
        """The event that tells that all was undone; error is "step:Code"."""
        return None

    async def on_compensate(self, id: Id, step: SagaStep) -> object | None:  # noqa: ARG002
        """The event that asks for the undo; None: nothing to undo. Unless defined, it is made of what is known."""
        return None

    async def on_command(self, id: Id, step: SagaStep) -> object | None:  # noqa: ARG002
        """The command for a participant. Unless defined, it is made of what is known."""
        return None

    async def on_late(self, id: Id, signal: str) -> object | None:  # noqa: ARG002
        """The event that tells of a signal after the end. Unless defined, it is in the history only."""
        return None

    @classmethod
    def defines(cls, method: str) -> bool:
        """Is the method the saga's own?"""
        return getattr(cls, method) is not getattr(SagaDef, method)


def arguments_of(cls: type[Any]) -> tuple[Any, Any]:
    """Trigger and Id of a saga class."""
    bases = (one for parent in cls.__mro__ for one in getattr(parent, "__orig_bases__", ()))
    for one in bases:
        if typing.get_origin(one) is SagaDef:
            trigger, id_type = typing.get_args(one)
            return trigger, id_type
    raise ConfigurationError(
        f"saga class {cls.__qualname__} does not say what starts it",
        hint="Subclass SagaDef[Trigger, Id], such as SagaDef[OrderPlaced, str].",
    )


def plain_id(cls: Any) -> Any:
    """str, int or UUID, also behind a NewType; None for other types."""
    while hasattr(cls, "__supertype__"):
        cls = cls.__supertype__
    return cls if cls in PLAIN_IDS else None
