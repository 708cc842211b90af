"""What an instance is explained as, planned against new code, and drawn as."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from postlude.core.saga.definition import Definition, Kind
from postlude.core.saga.explain import explain
from postlude.core.saga.mermaid import of_definition, of_instance
from postlude.core.saga.plan import fit, misfit, plan
from postlude.saga.compiled import compiled
from postlude.testing.saga import (
    Scenario,
    dies,
    err,
    given,
    gives_up,
    ok,
    passes,
    retry,
    undo_err,
    undo_gives_up,
    undo_ok,
)
from tests.sagas import LINEAR, PARALLEL, PIVOT, PLAIN_ORDER, REMOTE, WAIT, PlaceOrder, awaited, local, saga_of


def words(scenario: Scenario) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    found = explain(scenario.definition, scenario.instance)
    return found.step, found.waits_for, found.remaining


# ------------------------------------------------------------ explain


def test_what_a_running_instance_waits_for() -> None:
    assert words(given(LINEAR)) == ("a", ("a: its handler (attempt 1)",), ("a", "b", "c", "d"))
    assert words(given(WAIT).when(ok("a"))) == ("w", ("w: an event, w.yes or w.no",), ("w", "b", "v"))
    assert words(given(REMOTE).when(ok("a")))[1] == ("r: a reply, r.done or r.failed",)
    assert words(given(PARALLEL).when(ok("a")))[1] == ("b: its handler (attempt 1)", "c: its handler (attempt 1)")


def test_what_a_compensating_instance_waits_for() -> None:
    back = given(LINEAR).when(ok("a"), ok("b"), err("c"))
    assert words(back) == ("b", ("undo of b: its handler (attempt 1)",), ("b", "a"))
    back = given(REMOTE).when(ok("a"), ok("r"), err("s"))
    assert words(back)[1] == ("undo of r: a reply, r.undone or r.undo_failed",)


def test_a_block_that_turned_back_is_at_the_branch_that_still_runs() -> None:
    back = given(PARALLEL).when(ok("a"), err("b"))
    assert words(back) == ("c", ("c: its handler (attempt 1)",), ("c", "a"))


def test_what_a_stuck_instance_waits_for() -> None:
    past = given(PIVOT).when(ok("a"), ok("b"), ok("p"))
    assert words(past.when(gives_up("r", "Timeout"))) == (
        "r",
        ("an operator: r may have happened (Timeout); retry, skip with a value, or compensate",),
        ("r", "s"),
    )
    past.when(retry(), err("r", "No"))
    assert words(past)[1] == ("an operator: r failed (No); retry, skip with a value, or compensate",)
    back = given(LINEAR).when(ok("a"), ok("b"), err("c"), undo_err("b", "No"))
    assert words(back)[1] == ("an operator: the undo of b failed (No); retry, or skip when it is undone by hand",)
    back.when(retry(), undo_gives_up("b", "Timeout"))
    assert words(back)[1] == ("an operator: the undo of b gave up (Timeout); retry, or skip when it is undone by hand",)
    held = given(LINEAR).when(dies("poison"))
    assert words(held)[1] == (
        "an operator: a signal died (poison); requeue it and retry",
        "a: its handler (attempt 1)",
    )


def test_an_ended_instance_waits_for_nothing() -> None:
    assert words(given(LINEAR).when(err("a"))) == (None, (), ())


# ------------------------------------------------------------ plan


def changed(*steps: str) -> Definition:
    return saga_of("linear", *(local(name) if name != "d" else local("d", undo=None) for name in steps))


def test_the_same_definition_continues() -> None:
    (line,) = plan(LINEAR, [given(LINEAR).instance])
    assert (line.continues, line.why) == (True, "same definition")


@pytest.mark.parametrize("steps", ["abcde", "ab", "abd", "abxc"])
def test_what_lies_ahead_may_change(steps: str) -> None:
    code = changed(*steps)
    instance = given(LINEAR).when(ok("a")).instance
    (line,) = plan(code, [instance])
    assert (line.continues, line.why) == (True, "changed only in what lies ahead")
    fitted = fit(code, instance)
    assert [state.name for state in fitted.steps] == list(steps)
    assert fitted.hash == code.hash
    assert misfit(code, fitted) is None


def test_a_fitted_instance_goes_on() -> None:
    code = changed("a", "b", "x")
    scenario = given(code)
    scenario.instance = fit(code, given(LINEAR).when(ok("a")).instance)
    scenario.when(ok("b"), ok("x")).then(status="completed")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (changed("a", "c", "d"), "step b was begun and is no longer there"),
        (changed("b", "a", "c"), "step a was begun and now stands in another place"),
        (changed("x", "a", "b"), "step a was begun and now stands in another place"),
        (saga_of("linear", local("a"), local("b", undo=None)), "step b was begun and has changed since"),
        (saga_of("linear", local("a"), local("b", kind=Kind.pivot)), "step b was begun and has changed since"),
    ],
)
def test_what_was_begun_must_be_as_it_was(code: Definition, why: str) -> None:
    (line,) = plan(code, [given(LINEAR).when(ok("a")).instance])
    assert (line.continues, line.why) == (False, why)


def test_a_block_that_was_begun_takes_no_new_branch() -> None:
    code = replace(PARALLEL, steps=(*PARALLEL.steps[:3], local("new", block="x")))
    assert misfit(code, given(PARALLEL).when(ok("a")).instance) == "step new was put into block x, which was begun"
    assert misfit(code, given(PARALLEL).instance) is None


def test_a_saga_that_is_gone_and_instances_that_ended() -> None:
    (line,) = plan(None, [given(LINEAR).instance, given(LINEAR).when(err("a")).instance])
    assert (line.continues, line.why) == (False, "the code has no saga of this name")


def test_an_instance_that_fits_is_left_as_it_is() -> None:
    instance = given(LINEAR).instance
    assert fit(LINEAR, instance) is instance


# ------------------------------------------------------------ diagrams


def test_the_diagram_of_a_definition() -> None:
    assert of_definition(compiled(PlaceOrder).definition).splitlines() == [
        "flowchart LR",
        '    start(["start"])',
        '    s0["reserve"]',
        '    s1{"charge<br/>pivot<br/>command"}',
        '    s2[/"approve<br/>retriable<br/>wait"/]',
        '    completed(["completed"])',
        "    start --> s0",
        "    s0 --> s1",
        "    s1 --> s2",
        "    s2 --> completed",
        '    compensated(["compensated"])',
        "    s1 -. undo .-> s0",
        "    s0 -. undo .-> compensated",
    ]


def test_a_block_is_drawn_as_one() -> None:
    lines = of_definition(compiled(PLAIN_ORDER).definition).splitlines()
    assert lines[3:7] == ['    subgraph b1["parallel_1"]', '        s1["charge"]', '        s2["note"]', "    end"]
    assert "    s0 --> s1 & s2" in lines
    assert "    s1 & s2 --> s3" in lines


def test_a_saga_without_an_undo_goes_back_at_once() -> None:
    assert "start -. failure .-> compensated" in of_definition(saga_of("s", local("a", undo=None)))


def test_the_diagram_of_an_instance_shows_what_happened() -> None:
    back = given(LINEAR).when(ok("a"), ok("b"), err("c", 'No "way"'), undo_ok("b"))
    drawn = of_instance(LINEAR, back.instance).splitlines()
    assert '    s0["a<br/>undoing"]' in drawn
    assert '    s1["b<br/>undone"]' in drawn
    assert '    s2["c<br/>failed<br/>No &quot;way&quot;"]' in drawn
    assert '    s3["d"]' in drawn
    assert [line for line in drawn if line.startswith("    class s") and "status" not in line] == [
        "    class s0 busy",
        "    class s1 back",
        "    class s2 bad",
    ]
    assert '    status{{"compensating<br/>c:No &quot;way&quot;"}}' in drawn


def test_the_diagram_says_how_it_ended_and_what_was_tried_again() -> None:
    again = given(PIVOT).when(ok("a"), ok("b"), ok("p"), gives_up("r"), retry(), ok("r"), ok("s"))
    drawn = of_instance(PIVOT, again.instance).splitlines()
    assert '    s3["r<br/>retriable<br/>done (attempt 2)"]' in drawn
    assert drawn[-2:] == ['    status{{"completed"}}', "    class status good"]


# ------------------------------------------------------------ the kit itself


def test_the_kit_tells_what_is_wrong_and_what_happened() -> None:
    with pytest.raises(AssertionError, match=r"status is 'running', not 'completed'(.|\n)*begun a(.|\n)*waits for: a:"):
        given(LINEAR).then(status="completed")


def test_deadlines_pass_in_their_order() -> None:
    saga = saga_of("s", awaited("w", deadline=9.0, block="x"), awaited("v", deadline=5.0, block="x"))
    given(saga).when(passes(timedelta(seconds=30))).then(error="v:Deadline", status="compensated")
