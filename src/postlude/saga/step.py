"""A step of a typed saga, as it is written down."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from postlude.core.retry import Retry
from postlude.outbox.handlers import EventHandler

S = TypeVar("S")
F = TypeVar("F")
KindName = Literal["compensatable", "pivot", "retriable"]


class Unsaid:
    """Stands where an argument was left out: None is an answer, silence is not."""

    def __repr__(self) -> str:
        return "<not said>"


UNSAID: Any = Unsaid()


@dataclass(frozen=True, init=False, slots=True)
class SagaStep:
    """Who does it (`handler`, `command` with `topic`, or `wait`), which events end it, and what undoes it.

    `compensation` is the event that asks for the undo; None says that there is nothing to undo. With `compensated` the
    undo is a participant's, and it replies; without, it is a handler's of this app.
    """

    name: str
    handler: type[EventHandler[Any, Any, Any]] | None
    command: type[Any] | None
    wait: type[Any] | None
    topic: str | None
    success: type[Any] | None
    failure: type[Any] | None
    compensation: type[Any] | None
    compensated: type[Any] | None
    compensation_failed: type[Any] | None
    kind: KindName | None
    deadline: timedelta | None
    retry: Retry | None
    block: str | None

    @overload
    def __init__(
        self,
        name: str,
        *,
        handler: type[EventHandler[Any, S, F]],
        success: type[S],
        failure: type[F] | None = None,
        compensation: type[Any] | None = ...,
        kind: KindName | None = None,
        deadline: timedelta | None = None,
        retry: Retry | None = None,
        block: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        command: type[Any],
        topic: str,
        success: type[Any],
        failure: type[Any] | None = None,
        compensation: type[Any] | None = ...,
        compensated: type[Any] | None = None,
        compensation_failed: type[Any] | None = None,
        kind: KindName | None = None,
        deadline: timedelta | None = None,
        retry: Retry | None = None,
        block: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        wait: type[Any],
        failure: type[Any] | None = None,
        compensation: type[Any] | None = ...,
        kind: KindName | None = None,
        deadline: timedelta | None = None,
        block: str | None = None,
    ) -> None: ...
    def __init__(self, name: str, **said: Any) -> None:
        unknown = said.keys() - set(self.__slots__)
        if unknown:
            raise TypeError(f"SagaStep has no argument {', '.join(sorted(unknown))}")
        for attribute in self.__slots__:
            object.__setattr__(self, attribute, said.get(attribute))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "compensation", said.get("compensation", UNSAID))
        if self.wait is not None:
            object.__setattr__(self, "success", said.get("success", self.wait))

    @property
    def undo_is_said(self) -> bool:
        return self.compensation is not UNSAID
