"""Every schedule of six sagas keeps the invariants; engines with the mistakes of others are caught on the shortest path."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from postlude.core.saga.compensate import begin_undo
from postlude.core.saga.decide import decide
from postlude.core.saga.decision import Decision, Ignored, Record, RunStep
from postlude.core.saga.definition import Definition
from postlude.core.saga.draft import Draft
from postlude.core.saga.forward import begin
from postlude.core.saga.instance import Instance, Phase, SagaStatus
from postlude.core.saga.signal import Signal, StepFailed, StepGaveUp, StepSucceeded
from postlude.testing.explore import Exploration, explore
from postlude.testing.saga_moves import Engine
from postlude.testing.saga_world import Faults
from tests.sagas import LINEAR, PARALLEL, PLAIN_ORDER, SAGAS, PlaceOrder, local, saga_of

PAIR = saga_of("pair", local("a"), local("b"))

# The least schedules of each, so that a change that looks at fewer is noticed; together more than 100,000.
LEAST = {
    "linear": 30_000,
    "parallel": 400_000,
    "pivot": 5_000,
    "wait": 10_000,
    "deadline": 700_000,
    "remote": 1_000_000,
}


@pytest.mark.parametrize("saga", SAGAS, ids=lambda saga: saga.name)
def test_no_schedule_of_two_failures_and_two_duplicates_breaks_an_invariant(saga: Definition) -> None:
    found = explore(saga, Faults(failures=2, duplicates=2)).check()
    assert found.schedules >= LEAST[saga.name]


def test_the_six_sagas_have_more_than_a_hundred_thousand_schedules() -> None:
    assert {saga.name for saga in SAGAS} == LEAST.keys()
    assert sum(LEAST.values()) > 100_000


@pytest.mark.parametrize("saga", SAGAS, ids=lambda saga: saga.name)
def test_nor_does_an_operator_who_orders_at_any_time(saga: Definition) -> None:
    explore(saga, Faults(failures=1, duplicates=0, orders=1)).check()


@pytest.mark.parametrize("saga", [PlaceOrder, PLAIN_ORDER], ids=["typed", "plain"])
def test_a_declared_saga_is_one_call(saga: type[PlaceOrder]) -> None:
    assert explore(saga).check().schedules > 100


# ------------------------------------------------------------ broken engines


def ignores_exhausted_retries(definition: Definition, instance: Instance, signal: Signal, now: datetime) -> Decision:
    """An infrastructure error never reaches the orchestrator."""
    if isinstance(signal, StepGaveUp):
        return Decision(instance, (), (Record(now, "logged", signal.step),), Ignored.unexpected)
    return decide(definition, instance, signal, now)


def forgets_the_unknown(definition: Definition, instance: Instance, signal: Signal, now: datetime) -> Decision:
    """A step that gave up is taken for one that did not happen."""
    if isinstance(signal, StepGaveUp):
        signal = StepFailed(signal.step, signal.attempt, signal.code)
    return decide(definition, instance, signal, now)


def undoes_all_at_once(definition: Definition, instance: Instance, signal: Signal, now: datetime) -> Decision:
    """Compensations are only emitted, all together."""
    decision = decide(definition, instance, signal, now)
    if decision.instance.status is not SagaStatus.compensating or instance.turned:
        return decision
    draft = Draft(definition, decision.instance, now)
    for index in draft.indexes(Phase.done, Phase.unknown):
        if draft.step(index).undo is not None:
            begin_undo(draft, index)
    together = draft.decision()
    follow_ups = decision.follow_ups + together.follow_ups
    return replace(decision, instance=replace(together.instance, version=instance.version + 1), follow_ups=follow_ups)


def goes_on_after_a_late_success(definition: Definition, instance: Instance, signal: Signal, now: datetime) -> Decision:
    """The next step begins before anybody looks at the status."""
    decision = decide(definition, instance, signal, now)
    ahead = [index for index, state in enumerate(instance.steps) if state.phase is Phase.ahead]
    if not isinstance(signal, StepSucceeded) or not instance.turned or instance.status.is_end or not ahead:
        return decision
    draft = Draft(definition, decision.instance, now)
    begin(draft, ahead[0])
    after = replace(draft.decision().instance, version=instance.version + 1)
    follow_ups = (*decision.follow_ups, *draft.follow_ups)
    return replace(decision, instance=after, follow_ups=follow_ups, ignored=None)


def does_not_wait_for_the_other_branch(
    definition: Definition, instance: Instance, signal: Signal, now: datetime
) -> Decision:
    """Compensation passes a block whose branches still run."""
    if isinstance(signal, StepFailed) and not instance.status.is_end:
        others = [state for state in instance.steps if state.phase is Phase.running and state.name != signal.step]
        states = tuple(replace(state, phase=Phase.dropped) if state in others else state for state in instance.steps)
        instance = replace(instance, steps=states)
    return decide(definition, instance, signal, now)


BROKEN = [
    (
        ignores_exhausted_retries,
        PAIR,
        "no end: running, and nothing is under way",
        ("start", "a: gives up before it happens", "deliver StepGaveUp(a)"),
    ),
    (
        forgets_the_unknown,
        PAIR,
        "not undone: a",
        ("start", "a: gives up after it happened", "deliver StepGaveUp(a)"),
    ),
    (
        undoes_all_at_once,
        LINEAR,
        "undo of a before the undo of b",
        (
            "start",
            "a: Ok",
            "deliver StepSucceeded(a)",
            "b: gives up after it happened",
            "deliver StepGaveUp(b)",
            "undo a: Ok",
        ),
    ),
    (
        goes_on_after_a_late_success,
        PARALLEL,
        "undo of b before the undo of d",
        (
            "start",
            "a: Ok",
            "deliver StepSucceeded(a)",
            "b: Ok",
            "c: Err",
            "deliver StepFailed(c)",
            "deliver StepSucceeded(b)",
            "d: Ok",
            "undo b: Ok",
        ),
    ),
    (
        does_not_wait_for_the_other_branch,
        PARALLEL,
        "undo of a before the undo of b",
        ("start", "a: Ok", "deliver StepSucceeded(a)", "b: Ok", "c: Err", "deliver StepFailed(c)", "undo a: Ok"),
    ),
]


@pytest.mark.parametrize(("engine", "saga", "breach", "path"), BROKEN, ids=[case[0].__name__ for case in BROKEN])
def test_a_broken_engine_is_caught_on_the_shortest_path(
    engine: Engine, saga: Definition, breach: str, path: tuple[str, ...]
) -> None:
    found = explore(saga, Faults(failures=1, duplicates=1), engine=engine)
    assert (found.breach, found.path) == (breach, path)


def test_what_was_found_is_told_step_by_step() -> None:
    with pytest.raises(AssertionError, match=r"saga pair: not undone: a, after\n  1\. start\n  2\. a: gives up"):
        explore(PAIR, engine=forgets_the_unknown).check()


def test_a_saga_that_never_comes_to_an_end_is_caught() -> None:
    def begins_again_and_again(definition: Definition, instance: Instance, signal: Signal, now: datetime) -> Decision:
        decision = decide(definition, instance, signal, now)
        if not isinstance(signal, StepFailed):
            return decision
        state = instance[signal.step]
        later = replace(state, attempt=state.attempt + 1)
        again = replace(instance, steps=(later, *instance.steps[1:]), version=instance.version + 1)
        return replace(
            decision, instance=again, follow_ups=(RunStep(state.name, later.attempt, f"{later.attempt}"),), ignored=None
        )

    found: Exploration = explore(
        saga_of("one", local("a")), Faults(failures=99, duplicates=0), engine=begins_again_and_again, depth=20
    )
    assert found.breach == "no end within 20 moves"
    assert len(found.path) == 20
