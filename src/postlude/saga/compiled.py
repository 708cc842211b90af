"""From a declaration to the definition that the core decides by. Every start-up check is made on the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from postlude.core.event import spec_of
from postlude.core.saga.definition import Definition, Kind, Replies, Step, Way
from postlude.errors import ConfigurationError
from postlude.saga.check_plain import check_plain
from postlude.saga.check_typed import check_typed, source_of
from postlude.saga.plain import PlainStep, Saga
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef

Declared = SagaDef[Any, Any] | type[SagaDef[Any, Any]] | Saga[Any]


class Compiled(msgspec.Struct, frozen=True):
    """A checked saga: what was declared, and what it means."""

    source: SagaDef[Any, Any] | Saga[Any]
    definition: Definition


def compiled(saga: Declared) -> Compiled:
    """Raises ConfigurationError with a sentence that names the saga and the step."""
    if isinstance(saga, Saga):
        check_plain(saga)
        return Compiled(saga, _plain(saga))
    if isinstance(saga, type) and issubclass(saga, SagaDef):
        saga = saga()
    if not isinstance(saga, SagaDef):
        raise ConfigurationError(
            f"{saga!r} is no saga", hint="Give an instance of a SagaDef subclass, or a Saga with its steps."
        )
    check_typed(saga)
    return Compiled(saga, _typed(saga))


def _typed(saga: SagaDef[Any, Any]) -> Definition:
    return Definition(
        name=saga.name,
        steps=tuple(_typed_step(saga, step, kind) for step, kind in zip(saga.steps, kinds(saga.steps), strict=True)),
        deadline=_seconds(saga.deadline),
        reports_late=saga.defines("on_late"),
    )


def _typed_step(saga: SagaDef[Any, Any], step: SagaStep, kind: Kind) -> Step:
    way = Way.handler if step.handler else Way.command if step.command else Way.wait
    undo = Way.handler if step.compensated is None else Way.command
    return Step(
        name=step.name,
        kind=kind,
        way=way,
        undo=None if step.compensation is None or not step.undo_is_said else undo,
        block=step.block,
        takes=source_of(saga, step) if step.handler else None,
        replies=Replies(
            success=_type(step.success),
            failure=_type(step.failure),
            compensated=_type(step.compensated),
            compensation_failed=_type(step.compensation_failed),
        ),
        deadline=_seconds(step.deadline),
        retry=step.retry,
    )


def _plain(saga: Saga[Any]) -> Definition:
    steps = tuple(
        Step(
            name=step.name,
            kind=kind,
            undo=None if step.undo is None or not step.undo_is_said else Way.handler,
            block=step.block,
            deadline=_seconds(step.deadline),
            retry=step.retry,
        )
        for step, kind in zip(saga.steps, kinds(saga.steps), strict=True)
    )
    return Definition(name=saga.name, steps=steps, deadline=_seconds(saga.deadline))


def kinds(steps: tuple[SagaStep, ...] | tuple[PlainStep[Any], ...]) -> list[Kind]:
    """What a step does not say of itself follows from where it stands: after the pivot it is retriable."""
    found: list[Kind] = []
    for step in steps:
        after = Kind.pivot in found
        found.append(Kind(step.kind) if step.kind else Kind.retriable if after else Kind.compensatable)
    return found


def _type(cls: type[Any] | None) -> str | None:
    return None if cls is None else spec_of(cls).type


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
