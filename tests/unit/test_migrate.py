from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import SchemaTooNew
from postlude.storage.migrate import Migration, Phase, load, pending

KNOWN = [
    Migration(1, "pre", "first", "one"),
    Migration(2, "post", "second", "two"),
    Migration(3, "pre", "third", "three"),
]


def numbers(applied: set[int], phase: Phase | None = None) -> list[int]:
    phases = {step.number: step.phase for step in KNOWN}
    return [step.number for step in pending(KNOWN, {number: phases[number] for number in applied}, phase)]


def test_everything_is_pending_on_an_empty_database() -> None:
    assert numbers(set()) == [1, 2, 3]


@pytest.mark.parametrize(("phase", "left"), [("pre", [3]), ("post", [2]), (None, [2, 3])])
def test_a_phase_is_a_part(phase: Phase | None, left: list[int]) -> None:
    assert numbers({1}, phase) == left


def test_a_post_step_that_was_left_out_is_still_pending_after_later_ones() -> None:
    assert numbers({1, 3}) == [2]


@given(applied=st.sets(st.sampled_from([1, 2, 3])))
def test_applied_and_pending_are_everything_and_disjoint(applied: set[int]) -> None:
    left = numbers(applied)
    assert sorted(applied | set(left)) == [1, 2, 3]
    assert not applied & set(left)
    assert left == sorted(left)


APPLIED = {1: "pre", 2: "post", 3: "pre"}


def test_a_database_that_was_cleaned_up_by_newer_code_is_refused() -> None:
    with pytest.raises(SchemaTooNew, match="version 5, this Postlude knows 3") as refused:
        pending(KNOWN, {**APPLIED, 4: "pre", 5: "post", 6: "pre"})
    assert refused.value.hint


def test_a_database_that_was_only_prepared_for_newer_code_is_fine() -> None:
    assert pending(KNOWN, {**APPLIED, 4: "pre", 5: "pre"}) == []


@pytest.mark.parametrize("package", ["postlude.storage.postgres", "postlude.storage.sqlite"])
def test_the_files_are_numbered_without_gaps(package: str) -> None:
    steps = load(package, schema="elsewhere")
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert not any("postlude.postlude_" in step.sql for step in steps)
