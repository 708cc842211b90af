"""What an operator may order, what is refused, and with which words."""

from __future__ import annotations

import pytest

from postlude.core.saga.decision import RunStep, SendCommand
from postlude.core.saga.definition import Kind, Way
from postlude.core.saga.instance import Phase
from postlude.testing.saga import (
    SAGA,
    Happening,
    Scenario,
    arrives,
    cancel,
    compensate,
    dies,
    err,
    given,
    gives_up,
    ok,
    retry,
    skip,
    undo_err,
    undo_ok,
)
from tests.sagas import LINEAR, PIVOT, REMOTE, WAIT, local, saga_of


def past_pivot() -> Scenario:
    return given(PIVOT).when(ok("a"), ok("b"), ok("p"))


def why(scenario: Scenario, order: Happening) -> str:
    before = scenario.instance
    scenario.when(order).then(ignored="refused")
    assert scenario.instance is before
    assert scenario.history[-1].what == "refused"
    return str(scenario.decisions[-1].why)


def test_retry_begins_again_with_the_same_key_when_nobody_knows() -> None:
    again = past_pivot().when(gives_up("r"), retry()).then(status="running", under_way=["r"])
    assert again.work == [RunStep("r", 2, f"{SAGA}:r")]
    assert ("retry", "r", "tester: a test") in [(one.what, one.step, one.detail) for one in again.history]


def test_retry_takes_a_new_key_when_the_old_one_has_its_answer() -> None:
    again = past_pivot().when(err("r"), retry())
    assert again.work == [RunStep("r", 2, f"{SAGA}:r:2")]


def test_a_named_step_that_is_under_way_can_begin_again() -> None:
    silent = given(REMOTE).when(ok("a"), retry("r"))
    assert silent.work[0] == SendCommand("r", 2, f"{SAGA}:r")


def test_skip_takes_the_step_for_done_with_a_value() -> None:
    skipped = past_pivot().when(gives_up("r"), skip(value=7)).then(status="running", under_way=["s"])
    assert skipped.instance["r"].result == 7
    given(PIVOT).when(ok("a"), ok("b"), gives_up("p"), skip("p")).then(status="running", under_way=["r"])


def test_skip_ends_a_wait_or_a_silent_participant() -> None:
    given(WAIT).when(ok("a"), skip("w")).then(under_way=["b"])
    given(REMOTE).when(ok("a"), skip("r", "by hand")).then(under_way=["s"])


def test_compensate_goes_back_before_the_pivot() -> None:
    back = given(LINEAR).when(ok("a"), compensate(), err("b"), undo_ok("a"))
    back.then(status="compensated", error="b:Cancelled", undone=["a"])


def test_compensate_goes_back_from_where_it_is_stuck() -> None:
    back = past_pivot().when(gives_up("r", "Timeout"), compensate()).then(error="r:Timeout", under_way=["b"])
    back.when(undo_ok("b"), undo_ok("a")).then(status="compensated", undone=["b", "a"])
    assert back.instance["p"].phase is Phase.done


def test_a_pivot_that_nobody_knows_of_is_left_by_compensate() -> None:
    given(PIVOT).when(ok("a"), ok("b"), gives_up("p"), compensate()).then(status="compensating", under_way=["b"])


@pytest.mark.parametrize("end", [gives_up("s"), err("s"), ok("s")], ids=["gives up", "err", "ok"])
def test_a_branch_that_ends_on_the_way_back_does_not_stop_it(end: Happening) -> None:
    retriable = {"kind": Kind.retriable, "undo": None, "block": "x"}
    pivot = local("p", kind=Kind.pivot, undo=None)
    saga = saga_of("s", local("a"), pivot, local("r", **retriable), local("s", **retriable))
    back = given(saga).when(ok("a"), ok("p"), gives_up("r"), compensate()).then(under_way=["s"], error="r:Exhausted")
    back.when(end).then(status="compensating", under_way=["a"], error="r:Exhausted")


def test_an_order_lifts_the_hold_of_a_dead_signal() -> None:
    given(LINEAR).when(dies("x"), ok("a"), cancel(), undo_ok("a")).then(status="compensated", error="b:Cancelled")
    held = given(LINEAR).when(dies("x"), retry()).then(status="running", under_way=["a"])
    assert held.history[-1].what == "retry"


@pytest.mark.parametrize(
    ("scenario", "order", "sentence"),
    [
        (given(LINEAR), retry(), "the saga is not stuck: name the step that is to begin again"),
        (given(LINEAR), retry("z"), "there is no step z: the steps are a, b, c, d"),
        (given(LINEAR), retry("b"), "b is ahead: it has not failed and is not under way"),
        (given(LINEAR).when(ok("a")), skip("a"), "a is done: it has not failed and is not under way"),
        (given(LINEAR), skip(), "no step needs to be skipped"),
        (given(LINEAR), skip("a"), "a is under way: skip it when it has given up"),
        (given(LINEAR).when(ok("a"), err("b")), skip("a"), "a is under way: skip it when it has given up"),
        (past_pivot(), cancel(), "the pivot has begun: from there a saga only goes forward"),
        (given(PIVOT).when(ok("a"), ok("b")), cancel(), "the pivot has begun: from there a saga only goes forward"),
        (past_pivot(), compensate(), "the pivot has begun: from there a saga only goes forward"),
        (past_pivot().when(gives_up("r")), cancel(), "the pivot has begun: from there a saga only goes forward"),
        (
            given(LINEAR).when(ok("a"), ok("b"), err("c"), undo_err("b")),
            compensate(),
            "the saga is on its way back: retry or skip what it is stuck on",
        ),
        (given(LINEAR).when(err("a")), retry(), "the saga is compensated already"),
        (given(WAIT).when(ok("a"), arrives("w.no"), undo_ok("a")), cancel(), "the saga is compensated already"),
    ],
)
def test_an_order_that_cannot_be_followed_is_refused(scenario: Scenario, order: Happening, sentence: str) -> None:
    assert why(scenario, order) == sentence


def test_of_several_troubles_the_one_to_skip_is_named() -> None:
    retriable = {"kind": Kind.retriable, "undo": None, "block": "x"}
    saga = saga_of("s", local("p", kind=Kind.pivot, undo=None), local("r", **retriable), local("s", **retriable))
    stuck = given(saga).when(ok("p"), gives_up("r"), gives_up("s"))
    assert stuck.stuck == ["r:Exhausted", "s:Exhausted"]
    assert why(stuck, skip()) == "name the step to skip: r, s"
    stuck.when(skip("r")).then(status="stuck", error="s:Exhausted")
    stuck.when(skip("s")).then(status="completed")


def test_a_remote_undo_under_way_is_not_skipped() -> None:
    back = given(REMOTE).when(ok("a"), ok("r"), err("s"))
    assert REMOTE["r"].undo is Way.command
    assert why(back, skip("r")) == "r is under way: skip it when it has given up"
