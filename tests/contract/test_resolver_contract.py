"""The resolver contract itself: a good resolver passes, and each broken one fails the scenario meant for it."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, get_args

import pytest

from postlude import ConfigurationError
from postlude.testing.contracts.resolver import ResolverContract
from postlude.testing.contracts.resolver_arrange import Ability, Capability
from tests.contract import broken_resolvers as broken
from tests.contract.broken_resolvers import Good, GoodKeeper, Shelf

CAUGHT: dict[type, str] = {
    broken.HasNoName: "its_name_is_valid_and_stable",
    broken.HasBlankInName: "its_name_is_valid_and_stable",
    broken.ChangesItsName: "its_name_is_valid_and_stable",
    broken.IsOurs: "an_app_can_register_it",
    broken.IsNotAsync: "its_methods_are_coroutine_functions",
    broken.TakesNoKey: "its_methods_take_what_a_worker_gives",
    broken.CanMoreThanDeclared: "it_can_do_what_is_declared_and_no_more",
    broken.ErasesNothing: "what_is_stored_is_erased",
    broken.ReturnsAStatus: "what_is_stored_is_erased",
    broken.RaisesForTheMissing: "a_missing_subject_is_already_absent",
    broken.RemembersKeysAndRaises: "the_same_key_may_come_again",
    broken.IgnoresTheKey: "the_key_reaches_the_vendor",
    broken.ActsTwice: "the_same_key_has_one_effect",
    broken.NeedsExtra: "extra_is_optional",
    broken.HasOneSubjectInMind: "many_subjects_at_once",
    broken.FailsWhenItIsNotAlone: "one_subject_many_times_at_once",
    broken.GivesUpTooSoon: "a_server_error_passes",
    broken.TakesOutagesForAbsence: "an_outage_is_no_proof_of_absence",
    broken.NeverGivesUp: "bad_credentials_are_a_resolver_error",
    broken.TriesAgainWithAnotherKey: "an_effect_whose_answer_is_lost_happens_once",
    broken.NamesTheSubject: "no_error_names_the_subject",
    broken.NamesTheSubjectInTheCause: "no_error_names_the_subject",
    broken.NamesTheSubjectInANote: "no_error_names_the_subject",
    broken.NamesTheExtra: "no_error_names_the_subject",
    broken.NamesTheMalformed: "a_malformed_reference_is_a_resolver_error",
    broken.NamesTheCorrection: "no_error_names_a_correction",
    broken.CannotBeCancelled: "a_call_that_hangs_can_be_cancelled",
    broken.KeepsItsLock: "cancelled_at_any_step_it_stays_usable",
    broken.IsDoneForAfterAFault: "it_works_again_after_any_fault",
    broken.CorrectsNothing: "a_correction_is_made",
    broken.CorrectsOnce: "a_later_correction_wins",
    broken.CorrectsNobodyForEver: "correcting_nobody_is_not_tried_again",
    broken.CorrectsByErasing: "a_correction_may_come_again",
    broken.VerifiesAnything: "verifying_tells_before_from_after",
    broken.VerifiesNothing: "a_missing_subject_is_verified_absent",
    broken.VerifiesByErasing: "verifying_changes_nothing",
    broken.KeepsTheFirstAnswer: "after_the_horizon_it_is_gone",
    broken.HasAHorizonBehind: "the_horizon_lies_ahead",
    broken.MovesTheHorizon: "a_horizon_may_be_asked_for_again",
    broken.CallsAScheduleAnErasure: "the_horizon_lies_ahead",
}

OWN: dict[type, set[type[Exception]]] = {
    broken.IsOurs: {ConfigurationError},
    broken.TakesNoKey: {TypeError},
    broken.RaisesForTheMissing: {LookupError},
    broken.RemembersKeysAndRaises: {RuntimeError},
    broken.NeedsExtra: {TypeError},
    broken.FailsWhenItIsNotAlone: {RuntimeError},
    broken.KeepsItsLock: {TimeoutError},
    broken.IsDoneForAfterAFault: {RuntimeError},
    broken.CorrectsNobodyForEver: {LookupError},
}
"""Of those that fail by what they raise themselves."""


class TestGood(ResolverContract):
    capabilities: ClassVar[frozenset[Capability]] = frozenset({"erase", "rectify", "verify"})
    abilities: ClassVar[frozenset[Ability]] = frozenset(get_args(Ability)) - {"expire"}
    moment = 0.01
    made: ClassVar[type] = Good

    @pytest.fixture
    def vendor(self) -> Shelf:
        return Shelf()

    @pytest.fixture
    def resolver(self, vendor: Shelf) -> Any:
        return self.made(vendor)


class TestGoodKeeper(TestGood):
    capabilities: ClassVar[frozenset[Capability]] = frozenset({"schedule"})
    abilities: ClassVar[frozenset[Ability]] = frozenset(get_args(Ability)) - {"values"}
    made: ClassVar[type] = GoodKeeper


@pytest.mark.parametrize(("made", "scenario"), CAUGHT.items(), ids=lambda one: getattr(one, "__name__", ""))
async def test_what_is_broken_is_caught(made: type, scenario: str) -> None:
    suite = TestGoodKeeper() if issubclass(made, GoodKeeper) else TestGood()
    if made is broken.KeepsItsLock:
        suite.patience = 0.5  # type: ignore[misc]  # it waits for ever
    shelf = Shelf()
    assert f"test_{scenario}" in suite.scenarios()
    run = getattr(suite, f"test_{scenario}")
    given = {"resolver": made(shelf), "vendor": shelf}
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what each raises, or what the suite says of it
        await run(**{name: given[name] for name in inspect.signature(run).parameters})
    assert caught.type in {AssertionError, *OWN.get(made, ())}


def test_every_broken_resolver_has_its_scenario() -> None:
    made = {one for one in vars(broken).values() if inspect.isclass(one) and issubclass(one, Good | GoodKeeper)}
    assert made - {Good, GoodKeeper} == set(CAUGHT)


def test_what_is_not_declared_is_left_out_and_said() -> None:
    class Modest(ResolverContract):
        capabilities: ClassVar[frozenset[Capability]] = frozenset({"erase"})

    left_out = Modest.left_out()
    everything = set(ResolverContract.scenarios())
    assert set(Modest.scenarios()) | set(left_out) == everything
    assert not set(Modest.scenarios()) & set(left_out)
    assert left_out["test_a_correction_is_made"] == {"rectify", "values"}
    assert left_out["test_no_error_names_the_subject"] >= {"error", "hang", "refuse"}
    assert "test_what_is_stored_is_erased" in Modest.scenarios()

    class Bolder(Modest):
        capabilities: ClassVar[frozenset[Capability]] = frozenset({"erase", "rectify"})

    assert "test_a_correction_may_come_again" not in Modest.scenarios()
    assert "test_a_correction_may_come_again" in Bolder.scenarios()
