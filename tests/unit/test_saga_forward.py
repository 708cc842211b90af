"""The way forward: order, blocks, waits, deadlines, and the pivot."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import json
from msgspec.structs import replace

from postlude.core.saga.decide import decide, is_wanted
from postlude.core.saga.decision import (
    CancelDeadline,
    CancelDeadlines,
    Emit,
    ReportStuck,
    RunStep,
    RunUndo,
    ScheduleDeadline,
    SendCommand,
)
from postlude.core.saga.definition import Kind, Way
from postlude.core.saga.instance import Instance, Phase, new_instance, next_generation
from postlude.core.saga.signal import Signal, Started, StepSucceeded
from postlude.testing.saga import (
    MORNING,
    SAGA,
    arrives,
    dies,
    err,
    given,
    gives_up,
    ok,
    passes,
    retry,
    twice,
    undo_gives_up,
)
from tests.sagas import (
    DEADLINE,
    LINEAR,
    PARALLEL,
    PIVOT,
    PLAIN_ORDER,
    REMOTE,
    WAIT,
    PlaceOrder,
    awaited,
    local,
    saga_of,
)


def test_a_started_saga_begins_its_first_step() -> None:
    begun = given(LINEAR)
    assert begun.work == [RunStep("a", 1, f"{SAGA}:a")]
    assert begun.instance.version == 1
    assert [record.what for record in begun.history] == ["started", "begun"]


def test_steps_run_in_order_and_the_end_is_told() -> None:
    done = given(LINEAR).when(ok("a", 1), ok("b", 2), ok("c", 3), ok("d", 4))
    done.then(status="completed", told=["completed"], under_way=[])
    assert done.work == [CancelDeadlines(), Emit("completed")]
    assert [state.result for state in done.instance.steps] == [1, 2, 3, 4]
    assert done.instance.ended_at == MORNING


def test_a_result_begins_the_next_step_and_nothing_else() -> None:
    assert given(LINEAR).when(ok("a")).then(under_way=["b"]).work == [RunStep("b", 1, f"{SAGA}:b")]


def test_a_block_begins_together_and_is_joined() -> None:
    both = given(PARALLEL).when(ok("a")).then(under_way=["b", "c"])
    assert both.work == [RunStep("b", 1, f"{SAGA}:b"), RunStep("c", 1, f"{SAGA}:c")]
    both.when(ok("c")).then(under_way=["b"])
    assert both.work == []
    both.when(ok("b")).then(under_way=["d"])
    assert (both.instance["c"].order, both.instance["b"].order) == (2, 3)


def test_a_command_is_sent_and_its_reply_ends_it() -> None:
    sent = given(REMOTE).when(ok("a"))
    assert sent.work[0] == SendCommand("r", 1, f"{SAGA}:r")
    sent.when(ok("r", "receipt")).then(under_way=["s"])
    assert sent.instance["r"].result == "receipt"


def test_a_wait_asks_for_nothing_and_its_event_ends_it() -> None:
    waiting = given(WAIT).when(ok("a")).then(under_way=["w"])
    assert waiting.work == []
    waiting.when(arrives("w.yes")).then(under_way=["b"])


def test_deadlines_are_scheduled_with_the_step_and_cancelled_with_it() -> None:
    begun = given(DEADLINE)
    assert begun.work == [
        ScheduleDeadline(MORNING + timedelta(seconds=60)),
        RunStep("a", 1, f"{SAGA}:a"),
        ScheduleDeadline(MORNING + timedelta(seconds=5), "a", 1),
    ]
    begun.when(ok("a"))
    assert begun.work == [CancelDeadline("a"), ScheduleDeadline(MORNING + timedelta(seconds=9), "w", 1)]


def test_a_plain_step_may_replace_the_state() -> None:
    scenario = given(PLAIN_ORDER, {"order_id": "o-1"})
    scenario.tell(StepSucceeded("reserve", 1, "A1", {"order_id": "o-2"}))
    assert scenario.instance.state == {"order_id": "o-2"}
    scenario.when(ok("charge"))
    assert scenario.instance.state == {"order_id": "o-2"}


# ------------------------------------------------------------ the pivot and after


def test_a_pivot_that_fails_turns_back() -> None:
    given(PIVOT).when(ok("a"), ok("b"), err("p", "No")).then(status="compensating", error="p:No", under_way=["b"])


def test_a_pivot_of_which_nobody_knows_is_stuck() -> None:
    stuck = given(PIVOT).when(ok("a"), ok("b"), gives_up("p", "Timeout")).then(status="stuck", error="p:Timeout")
    assert stuck.work == [ReportStuck("p", "Timeout")]
    assert stuck.instance["p"].phase is Phase.gave_up


def test_a_pivot_that_gave_up_and_certainly_did_not_happen_turns_back() -> None:
    at_pivot = given(PIVOT).when(ok("a"), ok("b"), gives_up("p", "Rejected", may_have_happened=False))
    at_pivot.then(status="compensating", error="p:Rejected", under_way=["b"])


def test_a_pivot_with_an_undo_is_undone_when_nobody_knows() -> None:
    paying = given(PlaceOrder).when(ok("reserve"), passes(timedelta(minutes=6)))
    paying.then(status="compensating", error="charge:Deadline", under_way=["charge"])


def test_what_becomes_known_of_a_stuck_pivot_frees_it() -> None:
    stuck = given(PIVOT).when(ok("a"), ok("b"), gives_up("p"))
    stuck.when(ok("p")).then(status="running", under_way=["r"])
    assert stuck.instance.error is None
    stuck = given(PIVOT).when(ok("a"), ok("b"), gives_up("p"))
    stuck.when(err("p", "No")).then(status="compensating", error="p:No", under_way=["b"])


def test_a_retriable_step_that_fails_is_stuck() -> None:
    past = given(PIVOT).when(ok("a"), ok("b"), ok("p"))
    past.when(err("r", "No")).then(status="stuck", error="r:No")
    assert past.stuck == ["r:No"]
    past.when(ok("r")).then(status="running", under_way=["s"])
    past.when(gives_up("s", "Timeout")).then(status="stuck", error="s:Timeout")


def test_a_retriable_wait_whose_deadline_passes_is_stuck_until_it_comes() -> None:
    saga = saga_of("s", local("p", kind=Kind.pivot, undo=None), awaited("w", kind=Kind.retriable, deadline=5.0))
    late = given(saga).when(ok("p"), passes(timedelta(seconds=5))).then(status="stuck", error="w:Deadline")
    late.when(arrives("w.yes")).then(status="completed")
    assert late.instance.error is None


def test_branches_after_the_pivot_end_although_one_is_stuck() -> None:
    retriable = {"kind": Kind.retriable, "undo": None, "block": "x"}
    saga = saga_of("s", local("p", kind=Kind.pivot, undo=None), local("r", **retriable), local("s", **retriable))
    stuck = given(saga).when(ok("p"), gives_up("r"), ok("s")).then(status="stuck", under_way=[])
    assert stuck.instance["s"].phase is Phase.done
    stuck.when(retry(), ok("r")).then(status="completed")


# ------------------------------------------------------------ signals that die, and the shape of things


def test_a_dead_signal_makes_the_instance_stuck_and_holds_it() -> None:
    held = given(LINEAR).when(dies("poison")).then(status="stuck", error="signal:poison")
    assert held.work == [ReportStuck(None, "poison")]
    held.when(ok("a")).then(status="stuck", under_way=[])
    held.when(retry()).then(status="running", under_way=["b"])


def test_work_the_saga_has_gone_on_without_is_not_wanted() -> None:
    begun = given(LINEAR)
    work = begun.work[0]
    assert isinstance(work, RunStep)
    assert is_wanted(begun.instance, work)
    assert not is_wanted(begun.when(ok("a")).instance, work)
    assert not is_wanted(begun.when(ok("b"), ok("c"), ok("d")).instance, work)


def test_work_of_an_overtaken_attempt_is_not_wanted() -> None:
    again = given(LINEAR).when(ok("a"), ok("b"), err("c"), undo_gives_up("b"))
    undo = RunUndo("b", 1, f"{SAGA}:b:undo")
    assert not is_wanted(again.instance, undo)
    assert not is_wanted(again.when(retry()).instance, undo)
    assert is_wanted(again.instance, replace(undo, attempt=2))
    begun = given(LINEAR).when(retry("a"))
    assert not is_wanted(begun.instance, RunStep("a", 1, f"{SAGA}:a"))
    assert is_wanted(begun.instance, RunStep("a", 2, f"{SAGA}:a"))


def test_a_process_runs_again_after_its_end_only() -> None:
    running = given(LINEAR)
    assert next_generation(None) == 1
    assert next_generation(running.instance) is None
    assert next_generation(running.when(dies("x")).instance) is None
    ended = given(LINEAR).when(ok("a"), ok("b"), ok("c"), ok("d"))
    assert next_generation(ended.instance) == 2


def test_instances_and_signals_survive_being_written() -> None:
    one = given(PlaceOrder, {"order_id": "o-1"}).when(arrives("approved"), ok("reserve", {"shelf": "A1"})).instance
    assert json.decode(json.encode(one), type=Instance) == one
    signal = StepSucceeded("a", 1, {"x": 1})
    assert json.decode(json.encode(signal), type=Signal) == signal


def test_the_same_arguments_give_the_same_decision() -> None:
    fresh = new_instance(PARALLEL, UUID(int=7), "7", 1, None, MORNING)
    assert decide(PARALLEL, fresh, Started(), MORNING) == decide(PARALLEL, fresh, Started(), MORNING)


def test_every_decision_is_in_the_history_with_its_time() -> None:
    scenario = given(WAIT).when(passes(timedelta(minutes=1)), twice(ok("a")), arrives("other"))
    assert all(decision.history for decision in scenario.decisions)
    assert {record.at for record in scenario.history} == {MORNING, MORNING + timedelta(minutes=1)}
    assert all(isinstance(record.at, datetime) for record in scenario.history)


def test_steps_of_a_wait_with_an_undo_are_undone_by_this_app() -> None:
    assert WAIT["v"].undo is Way.handler
