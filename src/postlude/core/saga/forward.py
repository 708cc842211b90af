"""The way forward: stages in order, the steps of a block together, each stage joined before the next."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from postlude.core.saga.compensate import recede, turn
from postlude.core.saga.decision import CancelDeadlines, Emit, RunStep, SendCommand
from postlude.core.saga.definition import Kind, Way
from postlude.core.saga.draft import Draft, is_stuck, mark_stuck
from postlude.core.saga.instance import Phase, SagaStatus


def proceed(draft: Draft) -> None:
    """Whatever happened has been written down: what follows?"""
    if not draft.turned:
        _advance(draft)
    if draft.status.is_end:
        return
    if is_stuck(draft):
        mark_stuck(draft)
    elif draft.turned:
        draft.status = SagaStatus.compensating
        recede(draft)
    else:
        draft.status = SagaStatus.running
        draft.error = None


def begin(draft: Draft, index: int, *, afresh: bool = False) -> None:
    """Intent, with its key. A step that said Err is given a new key: the old one has its answer."""
    step, before = draft.step(index), draft.states[index]
    attempt = before.attempt + 1
    key = f"{draft.instance.id}:{step.name}"
    if before.key is not None:
        key = f"{key}:{attempt}" if afresh else before.key
    draft.change(index, phase=Phase.running, attempt=attempt, key=key, code=None)
    draft.note("waiting" if step.way is Way.wait else "begun", step.name, attempt, key)
    if step.way is Way.handler:
        draft.follow(RunStep(step.name, attempt, key))
    elif step.way is Way.command:
        draft.follow(SendCommand(step.name, attempt, key))
    draft.schedule(index)


def succeed(draft: Draft, index: int, result: Any, *, by: UUID | None = None, state: Any = msgspec.UNSET) -> None:
    before = draft.states[index]
    order = 1 + max(known.order for known in draft.states)
    draft.change(index, phase=Phase.done, result=result, code=None, by=by, order=order)
    if state is not msgspec.UNSET:
        draft.state = state
    late = None if before.phase is Phase.running else f"late, after {before.phase}"
    draft.note("done", before.name, before.attempt, late)
    if before.phase is Phase.running:
        draft.unschedule(index)


def fail(draft: Draft, index: int, code: str, *, known: bool, by: UUID | None = None) -> None:
    """`known`: nothing of it happened. Before the pivot has succeeded this turns the saga back; a pivot of which nobody
    knows, and that cannot be undone, and every retriable step need an operator."""
    step, before = draft.step(index), draft.states[index]
    blind = step.kind is Kind.pivot and step.undo is None and not known
    no_way_back = not draft.turned and (step.kind is Kind.retriable or blind)
    unsure = Phase.gave_up if no_way_back else Phase.unknown
    draft.change(index, phase=Phase.failed if known else unsure, code=code, by=by)
    draft.note("failed" if known else "unknown", step.name, before.attempt, code)
    if before.phase is Phase.running:
        draft.unschedule(index)
    if not no_way_back:
        turn(draft, step.name, code)


def _advance(draft: Draft) -> None:
    while not draft.turned and not is_stuck(draft):
        stage = _unfinished(draft)
        if stage is None:
            _complete(draft)
            return
        fresh = [index for index in stage if draft.phase(index) is Phase.ahead]
        if not fresh:
            return
        for index in fresh:
            begin(draft, index)
        for index in fresh:
            _take_early(draft, index)


def _unfinished(draft: Draft) -> tuple[int, ...] | None:
    for stage in draft.definition.stages:
        if any(draft.phase(index) is not Phase.done for index in stage):
            return stage
    return None


def _take_early(draft: Draft, index: int) -> None:
    """Has what the step waits for come already?"""
    step = draft.step(index)
    if step.way is not Way.wait or draft.phase(index) is not Phase.running:
        return
    for early in draft.early:
        if early.type in (step.replies.success, step.replies.failure):
            draft.early.remove(early)
            if early.type == step.replies.success:
                succeed(draft, index, early.value, by=early.event_id)
            else:
                fail(draft, index, early.code or early.type, known=True, by=early.event_id)
            return


def _complete(draft: Draft) -> None:
    draft.status = SagaStatus.completed
    draft.error = None
    draft.note("completed")
    draft.follow(CancelDeadlines())
    draft.follow(Emit("completed"))
    draft.drop_early()
