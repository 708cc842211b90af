"""The way back: reverse order, one undo at a time, each with what it undoes; and what nobody knows of."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postlude.core.saga.decision import CancelDeadline, CancelDeadlines, Emit, ReportStuck, RunUndo, SendUndo
from postlude.core.saga.definition import Kind, Way
from postlude.core.saga.instance import Phase
from postlude.testing.saga import (
    MORNING,
    SAGA,
    Happening,
    arrives,
    cancel,
    err,
    given,
    gives_up,
    ok,
    passes,
    retry,
    skip,
    undo_err,
    undo_gives_up,
    undo_ok,
)
from tests.sagas import (
    DEADLINE,
    LINEAR,
    PARALLEL,
    REMOTE,
    WAIT,
    ChargeFailed,
    PlaceOrder,
    awaited,
    local,
    remote,
    saga_of,
)


def test_undos_run_one_after_another_in_reverse_order() -> None:
    back = given(LINEAR).when(ok("a", "A"), ok("b", "B"), err("c", "No"))
    assert back.work == [RunUndo("b", 1, f"{SAGA}:b:undo", "B")]
    back.when(undo_ok("b")).then(status="compensating", under_way=["a"])
    assert back.work == [RunUndo("a", 1, f"{SAGA}:a:undo", "A")]
    back.when(undo_ok("a")).then(status="compensated", error="c:No", undone=["b", "a"], told=["failed"])
    assert back.work == [CancelDeadlines(), Emit("failed", "c:No")]


def test_a_first_step_that_fails_leaves_nothing_to_undo() -> None:
    given(LINEAR).when(err("a", "No")).then(status="compensated", error="a:No", undone=[], told=["failed"])


def test_what_has_no_undo_is_left_as_it_is() -> None:
    saga = saga_of("s", local("a", undo=None), local("b"))
    back = given(saga).when(ok("a"), err("b")).then(status="compensated", undone=[])
    assert back.instance["a"].phase is Phase.done


def test_a_step_of_unknown_outcome_is_undone_first() -> None:
    back = given(LINEAR).when(ok("a"), gives_up("b", "Timeout")).then(error="b:Timeout")
    assert back.work == [RunUndo("b", 1, f"{SAGA}:b:undo", None)]
    back.when(undo_ok("b"), undo_ok("a")).then(status="compensated", undone=["b", "a"])


def test_a_step_that_certainly_did_not_happen_is_not_undone() -> None:
    back = given(LINEAR).when(ok("a"), gives_up("b", "Timeout", may_have_happened=False), undo_ok("a"))
    back.then(status="compensated", undone=["a"])


# ------------------------------------------------------------ blocks


def test_a_failing_branch_lets_the_others_end() -> None:
    back = given(PARALLEL).when(ok("a"), err("b", "No")).then(status="compensating", under_way=["c"])
    assert back.work == []
    back.when(ok("c")).then(under_way=["c"])
    back.when(undo_ok("c"), undo_ok("a")).then(status="compensated", error="b:No", undone=["c", "a"])


def test_the_first_error_is_the_one_that_is_kept() -> None:
    back = given(PARALLEL).when(ok("a"), err("b", "First"), err("c", "Second"), undo_ok("a"))
    back.then(status="compensated", error="b:First", undone=["a"])
    assert back.instance["c"].code == "Second"


@pytest.mark.parametrize("order", [("b", "c"), ("c", "b")])
def test_a_block_is_undone_in_reverse_order_of_completion(order: tuple[str, str]) -> None:
    first, second = order
    back = given(PARALLEL).when(ok("a"), ok(first), ok(second), err("d"))
    back.then(under_way=[second]).when(undo_ok(second)).then(under_way=[first])


def test_what_nobody_knows_of_is_undone_before_the_rest_of_its_block() -> None:
    back = given(PARALLEL).when(ok("a"), gives_up("b"), ok("c")).then(under_way=["b"])
    back.when(undo_ok("b")).then(under_way=["c"])


def test_a_wait_in_a_block_is_over_when_another_branch_fails() -> None:
    saga = saga_of("s", local("a"), local("b", block="x"), awaited("w", block="x", deadline=5.0))
    back = given(saga).when(ok("a"), err("b")).then(status="compensating", under_way=["a"])
    assert CancelDeadline("w") in back.work
    back.when(arrives("w.yes")).then(ignored="late")


def test_a_wait_that_can_be_undone_is_undone_for_it_may_still_come() -> None:
    saga = saga_of("s", local("b", block="x"), awaited("w", block="x", undo=Way.handler))
    given(saga).when(err("b")).then(under_way=["w"]).when(undo_ok("w")).then(status="compensated")


# ------------------------------------------------------------ remote undos


def test_a_remote_undo_waits_for_its_reply() -> None:
    back = given(REMOTE).when(ok("a"), ok("r", "paid"), err("s"))
    assert back.work[-2:] == [
        SendUndo("r", 1, f"{SAGA}:r:undo", "paid"),
        back.deadlines[-1],
    ]
    assert back.deadlines[-1].at == MORNING + timedelta(seconds=5)
    back.when(undo_ok("r")).then(under_way=["a"]).when(undo_ok("a")).then(status="compensated", undone=["r", "a"])


def test_a_remote_undo_that_fails_or_never_replies_is_stuck() -> None:
    given(REMOTE).when(ok("a"), ok("r"), err("s"), undo_err("r")).then(status="stuck", error="s:Err")
    silent = given(REMOTE).when(ok("a"), ok("r"), err("s"), passes(timedelta(seconds=5))).then(status="stuck")
    assert silent.stuck == ["r:Deadline"]
    silent.when(undo_ok("r")).then(status="compensating", under_way=["a"])


# ------------------------------------------------------------ undos that fail


@pytest.mark.parametrize(
    ("failing", "phase", "key"),
    [(undo_err("b", "No"), Phase.undo_failed, ":2"), (undo_gives_up("b", "No"), Phase.undo_gave_up, "")],
    ids=["said so", "gave up"],
)
def test_an_undo_that_does_not_succeed_is_stuck(failing: Happening, phase: Phase, key: str) -> None:
    stuck = given(LINEAR).when(ok("a"), ok("b", "B"), err("c", "Why"), failing).then(status="stuck", error="c:Why")
    assert stuck.instance["b"].phase is phase
    assert stuck.work == [ReportStuck("b", "No")]
    stuck.when(retry())
    assert stuck.work == [RunUndo("b", 2, f"{SAGA}:b:undo{key}", "B")]
    stuck.when(undo_ok("b"), undo_ok("a")).then(status="compensated", error="c:Why", undone=["b", "a"])


def test_an_undo_done_by_hand_is_skipped() -> None:
    stuck = given(LINEAR).when(ok("a"), ok("b"), err("c"), undo_err("b"), skip())
    stuck.then(status="compensating", under_way=["a"], undone=["b"])


# ------------------------------------------------------------ deadlines


def test_a_deadline_turns_back_and_the_step_is_undone() -> None:
    given(DEADLINE).when(passes(timedelta(seconds=5))).then(error="a:Deadline", under_way=["a"])


def test_a_late_success_is_undone_with_its_result() -> None:
    saga = saga_of("s", local("a"), local("b", block="x", deadline=5.0), local("c", block="x"))
    late = given(saga).when(ok("a"), passes(timedelta(seconds=5))).then(status="compensating", under_way=["c"])
    late.when(ok("b", "after all")).then(under_way=["c"])
    assert late.instance["b"].phase is Phase.done
    late.when(err("c"))
    assert late.work[-1] == RunUndo("b", 1, f"{SAGA}:b:undo", "after all")


def test_a_late_failure_means_that_there_is_nothing_to_undo() -> None:
    saga = saga_of("s", local("a"), local("b", block="x", deadline=5.0), local("c", block="x"))
    late = given(saga).when(ok("a"), passes(timedelta(seconds=5)), err("b"), err("c"), undo_ok("a"))
    late.then(status="compensated", error="b:Deadline", undone=["a"])


def test_a_success_that_comes_during_or_after_its_undo_is_recorded() -> None:
    late = given(DEADLINE).when(passes(timedelta(seconds=5)), ok("a")).then(ignored="late", under_way=["a"])
    late.when(undo_ok("a"), ok("a")).then(ignored="after_end", status="compensated")
    assert [record.what for record in late.history].count("late") == 2


def test_a_wait_whose_deadline_passes_did_not_happen() -> None:
    late = given(DEADLINE).when(ok("a"), passes(timedelta(seconds=9))).then(error="w:Deadline", under_way=["a"])
    late.when(arrives("w.yes")).then(ignored="late")


def test_an_undo_of_this_app_has_no_deadline_to_cancel() -> None:
    back = given(DEADLINE).when(ok("a"), arrives("w.no"), undo_ok("a")).then(status="compensated")
    assert back.work == [CancelDeadlines(), Emit("failed", "w:w.no")]


def test_a_pivot_that_waits_turns_back_when_its_deadline_passes() -> None:
    saga = saga_of("s", local("a"), awaited("w", kind=Kind.pivot, deadline=9.0))
    late = given(saga).when(ok("a"), passes(timedelta(seconds=9))).then(error="w:Deadline", under_way=["a"])
    late.when(arrives("w.yes")).then(ignored="late", status="compensating")


def test_a_wait_that_can_be_undone_is_undone_when_its_deadline_passes() -> None:
    saga = saga_of("s", local("a"), awaited("w", undo=Way.handler, deadline=9.0))
    given(saga).when(ok("a"), passes(timedelta(seconds=9))).then(error="w:Deadline", under_way=["w"])


def test_the_deadline_of_the_saga_turns_it_back() -> None:
    saga = saga_of("s", local("a"), awaited("w"), deadline=60.0)
    given(saga).when(ok("a"), passes(timedelta(seconds=60))).then(error="w:SagaDeadline", under_way=["a"])


def test_a_saga_that_has_turned_back_has_no_deadline_any_more() -> None:
    back = given(DEADLINE).when(ok("a"), arrives("w.no")).then(status="compensating")
    assert CancelDeadline() in back.work
    assert back.deadlines == []


def test_the_deadline_of_the_saga_lets_what_runs_end() -> None:
    saga = saga_of("s", local("a"), local("b"), deadline=60.0)
    back = given(saga).when(ok("a"), passes(timedelta(seconds=60))).then(error="b:SagaDeadline", under_way=["b"])
    back.when(ok("b"), undo_ok("b"), undo_ok("a")).then(status="compensated", undone=["b", "a"])


def test_cancelling_lets_what_runs_end() -> None:
    back = given(LINEAR).when(ok("a"), cancel()).then(status="compensating", error="b:Cancelled", under_way=["b"])
    back.when(ok("b"), undo_ok("b"), undo_ok("a")).then(status="compensated", undone=["b", "a"])


def test_an_early_event_is_told_of_when_the_saga_turns_back() -> None:
    back = given(WAIT).when(arrives("w.yes"), err("a")).then(status="compensated")
    assert back.instance.early == ()
    assert ("late", "w.yes") in [(record.what, record.detail) for record in back.history]


def test_a_participant_without_an_undo_is_not_waited_for() -> None:
    saga = saga_of("s", local("a"), remote("r", undo=None, deadline=5.0))
    given(saga).when(ok("a"), passes(timedelta(seconds=5)), undo_ok("a")).then(status="compensated", undone=["a"])


def test_a_failure_event_is_called_by_its_code_or_its_type() -> None:
    given(WAIT).when(ok("a"), arrives("w.no")).then(error="w:w.no")
    given(PlaceOrder).when(ok("reserve"), arrives(ChargeFailed(order_id="o-1"))).then(error="charge:ChargeFailed")
