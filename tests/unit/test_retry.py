from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import Retry

seconds = st.floats(0, 1e9)
policies = st.builds(
    Retry,
    max_attempts=st.integers(1, 10**6),
    base_delay=seconds,
    multiplier=st.floats(1, 1e300),
    max_delay=seconds,
    jitter=st.floats(0, 1),
)
chances = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10**9)


def test_it_doubles_from_two_seconds_to_an_hour_by_default() -> None:
    plain = Retry(jitter=0)
    assert [plain.delay(n).total_seconds() for n in (1, 2, 3, 11, 12, 13)] == [2, 4, 8, 2048, 3600, 3600]


@given(policy=policies, attempts=attempts, chance=chances)
def test_a_delay_is_bounded_by_its_cap_and_jitter(policy: Retry, attempts: int, chance: float) -> None:
    most = policy.max_delay * (1 + policy.jitter)
    assert timedelta(0) <= policy.delay(attempts, chance=chance) <= timedelta(seconds=most)


@given(policy=policies, attempts=attempts, chance=chances)
def test_jitter_spreads_a_delay_around_its_middle(policy: Retry, attempts: int, chance: float) -> None:
    middle = policy.delay(attempts).total_seconds()
    distance = abs(policy.delay(attempts, chance=chance).total_seconds() - middle)
    assert distance <= middle * policy.jitter * (1 + 1e-9) + 1e-5


@given(policy=policies, attempts=attempts, more=st.integers(0, 1000))
def test_without_jitter_delays_never_shrink(policy: Retry, attempts: int, more: int) -> None:
    assert policy.delay(attempts) <= policy.delay(attempts + more)


@given(policy=policies, attempts=attempts, chance=chances)
def test_jitter_zero_is_deterministic(policy: Retry, attempts: int, chance: float) -> None:
    plain = Retry(policy.max_attempts, policy.base_delay, policy.multiplier, policy.max_delay, 0)
    assert plain.delay(attempts, chance=chance) == plain.delay(attempts, chance=0)


@pytest.mark.parametrize("attempts", [0, -1])
def test_there_is_no_delay_before_the_first_attempt(attempts: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Retry().delay(attempts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"base_delay": -1},
        {"max_delay": -1},
        {"multiplier": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"base_delay": float("nan")},
        {"max_delay": float("inf")},
        {"multiplier": float("nan")},
        {"jitter": float("nan")},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must|cannot"):
        Retry(**wrong)  # type: ignore[arg-type]  # a table of wrong values


def test_an_entry_may_bring_its_own_maximum() -> None:
    policy = Retry(max_attempts=3)
    assert [policy.is_exhausted(n) for n in (1, 2, 3, 4)] == [False, False, True, True]
    assert not policy.is_exhausted(4, max_attempts=5)
    assert policy.is_exhausted(1, max_attempts=1)
