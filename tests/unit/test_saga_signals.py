"""Signals that come twice, late, early, after the end or to the wrong address: each has its declared outcome."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from postlude.core.saga.decision import Decision, Emit
from postlude.core.saga.instance import MAX_EARLY, Phase
from postlude.core.saga.signal import (
    DeadlinePassed,
    EventArrived,
    Signal,
    SignalDied,
    Started,
    StepFailed,
    StepGaveUp,
    StepSucceeded,
    UndoFailed,
    UndoGaveUp,
    UndoSucceeded,
)
from postlude.testing.saga import (
    Scenario,
    arrives,
    err,
    given,
    gives_up,
    ok,
    passes,
    retry,
    twice,
    undo_err,
    undo_gives_up,
    undo_ok,
)
from tests.sagas import DEADLINE, LINEAR, PARALLEL, PIVOT, REMOTE, WAIT, awaited, local, saga_of


def unchanged(scenario: Scenario, signal: Signal) -> Decision:
    before = scenario.instance
    decision = scenario.tell(signal)
    assert decision.instance is before
    assert len(decision.history) == 1
    return decision


# ------------------------------------------------------------ twice


@pytest.mark.parametrize(
    "scenario",
    [
        given(LINEAR).when(twice(ok("a"))),
        given(LINEAR).when(ok("a"), ok("b"), twice(err("c"))),
        given(LINEAR).when(ok("a"), twice(gives_up("b"))).when(ok("a")),
        given(LINEAR).when(ok("a"), ok("b"), err("c"), twice(undo_ok("b"))),
        given(LINEAR).when(ok("a"), ok("b"), err("c"), twice(undo_err("b"))),
        given(LINEAR).when(ok("a"), ok("b"), err("c"), twice(undo_gives_up("b"))),
        given(PIVOT).when(ok("a"), ok("b"), twice(gives_up("p"))),
        given(WAIT).when(ok("a"), twice(arrives("w.yes"))),
        given(WAIT).when(twice(arrives("w.yes"))),
        given(REMOTE).when(ok("a"), ok("r"), err("s"), twice(undo_ok("r"))),
    ],
)
def test_a_signal_that_comes_twice_is_a_duplicate(scenario: Scenario) -> None:
    scenario.then(ignored="duplicate")
    assert scenario.history[-1].what == "duplicate"
    assert len(scenario.decisions[-1].follow_ups) == 0


def test_a_second_start_is_a_duplicate() -> None:
    assert unchanged(given(LINEAR), Started()).ignored == "duplicate"


def test_a_duplicate_is_not_taken_for_the_next_wait_of_the_same_type() -> None:
    first = awaited("w")
    again = saga_of("s", first, replace(first, name="v"))
    given(again).when(twice(arrives("w.yes"))).then(ignored="duplicate", under_way=["v"])
    given(again).when(arrives("w.yes"), arrives("w.yes")).then(status="completed")


def test_another_event_that_says_the_same_again_changes_nothing() -> None:
    given(WAIT).when(ok("a"), arrives("w.yes"), arrives("w.yes")).then(ignored="duplicate", under_way=["b"])


# ------------------------------------------------------------ late


def test_a_failure_of_an_overtaken_attempt_is_late() -> None:
    again = given(PIVOT).when(ok("a"), ok("b"), ok("p"), gives_up("r"), retry())
    again.when(err("r", attempt=1)).then(ignored="late", status="running")
    again.when(ok("r", "first", attempt=1)).then(under_way=["s"])
    again.when(ok("r", "second", attempt=2)).then(ignored="duplicate")
    assert again.instance["r"].result == "first"


def test_a_failure_of_an_overtaken_undo_is_late() -> None:
    again = given(LINEAR).when(ok("a"), ok("b"), err("c"), undo_gives_up("b"), retry())
    assert unchanged(again, UndoGaveUp("b", 1, "Exhausted")).ignored == "late"
    again.tell(UndoSucceeded("b", 1))
    again.then(under_way=["a"])
    assert unchanged(again, UndoFailed("b", 2, "No")).ignored == "late"


@pytest.mark.parametrize(
    "signal", [DeadlinePassed("a", 1), DeadlinePassed("w", 7), DeadlinePassed("b", 1)], ids=["over", "older", "ahead"]
)
def test_a_deadline_of_something_else_is_late(signal: DeadlinePassed) -> None:
    assert unchanged(given(DEADLINE).when(ok("a")), signal).ignored == "late"


def test_the_deadline_of_the_saga_is_late_once_the_pivot_has_begun_or_it_turned() -> None:
    begun = given(replace(PIVOT, deadline=60.0)).when(ok("a"), ok("b"), passes(timedelta(seconds=60)))
    begun.then(ignored="late", status="running", under_way=["p"])
    assert unchanged(given(LINEAR).when(ok("a"), err("b")), DeadlinePassed()).ignored == "late"


def test_results_that_contradict_what_is_known_are_late() -> None:
    assert unchanged(given(LINEAR).when(ok("a")), StepFailed("a", 1, "No")).ignored == "late"
    turned = given(PARALLEL).when(ok("a"), err("b"))
    assert unchanged(turned, StepSucceeded("b", 1)).ignored == "late"
    assert unchanged(turned.when(ok("c")), StepGaveUp("c", 1, "No")).ignored == "late"


def test_an_event_on_the_way_back_is_late() -> None:
    given(WAIT).when(ok("a"), arrives("w.yes"), err("b"), arrives("v.yes")).then(ignored="late")


# ------------------------------------------------------------ early


def test_an_early_event_is_kept_until_its_wait_begins() -> None:
    early = given(WAIT).when(arrives("w.yes")).then(under_way=["a"])
    assert [kept.type for kept in early.instance.early] == ["w.yes"]
    early.when(ok("a")).then(under_way=["b"])
    assert early.instance.early == ()
    assert early.instance["w"].phase is Phase.done


def test_an_early_refusal_counts_too() -> None:
    given(WAIT).when(arrives("w.no"), ok("a")).then(status="compensating", error="w:w.no", under_way=["a"])


def test_early_events_are_bounded_and_the_rest_is_refused_visibly() -> None:
    crowd = given(WAIT).when(*(arrives("w.yes") for _ in range(MAX_EARLY)))
    assert len(crowd.instance.early) == MAX_EARLY
    crowd.when(arrives("w.yes")).then(ignored="crowded")
    assert crowd.history[-1].what == "crowded"


def test_early_events_that_nobody_wanted_are_told_of_at_the_end() -> None:
    done = given(saga_of("s", local("a"), awaited("w"))).when(arrives("w.yes"), arrives("w.yes"), ok("a"))
    done.then(status="completed")
    assert done.instance.early == ()
    assert ("late", "w.yes") in [(record.what, record.detail) for record in done.history]


def test_nobody_replies_to_a_command_that_was_not_sent() -> None:
    given(REMOTE).when(arrives("r.done")).then(ignored="unexpected", under_way=["a"])


# ------------------------------------------------------------ to the wrong address


@pytest.mark.parametrize(
    "signal",
    [
        StepSucceeded("nobody", 1),
        StepSucceeded("b", 1),
        StepFailed("b", 1, "No"),
        UndoSucceeded("a", 1),
        UndoFailed("a", 1, "No"),
        DeadlinePassed("nobody", 1),
        EventArrived(UUID(int=9), "other"),
    ],
    ids=lambda signal: type(signal).__name__,
)
def test_what_no_step_wants_is_unexpected(signal: Signal) -> None:
    assert unchanged(given(LINEAR), signal).ignored == "unexpected"


def test_a_reply_to_another_command_is_not_taken() -> None:
    sent = given(REMOTE).when(ok("a"))
    key = sent.instance["r"].key
    assert unchanged(sent, EventArrived(UUID(int=9), "r.done", None, "of another run")).ignored is not None
    sent.tell(EventArrived(UUID(int=10), "r.done", None, key))
    sent.then(under_way=["s"])


# ------------------------------------------------------------ after the end


ENDED = given(LINEAR).when(err("a", "No"))


@pytest.mark.parametrize(
    "signal",
    [StepSucceeded("a", 1), EventArrived(UUID(int=9), "x"), DeadlinePassed(), SignalDied("x"), UndoSucceeded("a", 1)],
    ids=lambda signal: type(signal).__name__,
)
def test_what_comes_after_the_end_is_recorded(signal: Signal) -> None:
    decision = unchanged(ENDED, signal)
    assert (decision.ignored, decision.follow_ups) == ("after_end", ())
    assert decision.history[0].what == "late"


def test_a_saga_that_wants_to_know_is_told_of_news_after_its_end() -> None:
    ended = given(replace(WAIT, reports_late=True)).when(ok("a"), arrives("w.no"), undo_ok("a"))
    ended.then(status="compensated")
    assert ended.tell(EventArrived(UUID(int=9), "w.yes")).follow_ups == (Emit("late", "w:w.no", "w.yes"),)
    known = ended.instance["w"].by
    assert known is not None
    assert ended.tell(EventArrived(known, "w.no")).follow_ups == ()
    assert ended.tell(StepSucceeded("a", 1)).follow_ups == ()
    assert ended.tell(StepSucceeded("b", 1)).follow_ups == (Emit("late", "w:w.no", "StepSucceeded"),)
    assert ended.tell(DeadlinePassed()).follow_ups == ()
