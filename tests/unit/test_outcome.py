from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import Err, Ok, Park, Reject, Retry, Status
from postlude.core.delivery import Delivery
from postlude.core.outcome import Failed, Fault, Parked, Policy, Rejected, give_back, is_poison, judge

FAULT = Fault("ValueError", "some.code", "shop:charge:12")
LATER = datetime(2026, 1, 1, tzinfo=UTC)
SOON = Policy(Retry(max_attempts=3, base_delay=2, multiplier=2, jitter=0))


def delivery(**given_: Any) -> Delivery:
    told: dict[str, Any] = {
        "seq": 5,
        "event_id": UUID(int=5),
        "lane": 3,
        "key": "k",
        "priority": 1,
        "status": Status.pending,
        "attempts": 0,
    }
    return Delivery(**(told | given_))


idle = st.builds(
    delivery,
    key=st.none() | st.just("k"),
    status=st.sampled_from([Status.pending, Status.claimed, Status.failed, Status.scheduled]),
    attempts=st.integers(0, 20),
    max_attempts=st.none() | st.integers(1, 20),
)
started = st.builds(
    delivery,
    key=st.none() | st.just("k"),
    status=st.just(Status.claimed),
    attempts=st.integers(1, 20),
    max_attempts=st.none() | st.integers(1, 20),
    started=st.just(True),
)
deliveries = idle | started
outcomes = st.sampled_from([Failed(FAULT), Rejected(FAULT), Parked(LATER)])
policies = st.builds(
    Policy, st.builds(Retry, max_attempts=st.integers(1, 20), base_delay=st.floats(0, 100)), st.booleans()
)


def test_a_failure_is_tried_again_after_a_delay() -> None:
    verdict = judge(delivery(attempts=1), Failed(FAULT), SOON)
    assert (verdict.status, verdict.attempts, verdict.delay, verdict.blocks) == (Status.failed, 2, 4.0, True)
    assert verdict.error is not None
    assert msgspec.json.decode(verdict.error, type=Fault) == FAULT


def test_the_last_failure_is_a_dead_letter_that_lets_its_key_go() -> None:
    verdict = judge(delivery(attempts=2), Failed(FAULT), SOON)
    assert (verdict.status, verdict.attempts, verdict.blocks) == (Status.dead, 3, False)


def test_a_type_may_say_that_its_dead_letters_hold_their_key() -> None:
    strict = Policy(SOON.retry, on_dead_blocks=True)
    assert judge(delivery(), Rejected(FAULT), strict).blocks
    assert not judge(delivery(key=None), Rejected(FAULT), strict).blocks


def test_a_rejected_entry_is_dead_at_once() -> None:
    verdict = judge(delivery(), Rejected(FAULT), SOON)
    assert (verdict.status, verdict.attempts) == (Status.dead, 1)


def test_a_parked_entry_leaves_the_order_with_a_fresh_budget() -> None:
    verdict = judge(delivery(attempts=2), Parked(LATER), SOON)
    assert (verdict.status, verdict.attempts, verdict.until, verdict.blocks) == (Status.scheduled, 0, LATER, False)
    assert verdict.error is None


def test_an_attempt_that_was_committed_first_is_not_counted_twice() -> None:
    begun = delivery(status=Status.claimed, attempts=1, started=True)
    assert judge(begun, Failed(FAULT), SOON).attempts == 1
    assert give_back(begun).attempts == 0


@given(entry=deliveries, outcome=outcomes, policy=policies, chance=st.floats(0, 1, exclude_max=True))
def test_a_verdict_is_legal_and_says_what_it_saw(entry: Delivery, outcome: Any, policy: Policy, chance: float) -> None:
    verdict = judge(entry, outcome, policy, chance=chance)
    assert entry.status.can_become(verdict.status)
    assert (verdict.seq, verdict.lane) == (entry.seq, entry.lane)
    assert (verdict.was_status, verdict.was_attempts) == (entry.status, entry.attempts)
    assert not verdict.blocks or (entry.key is not None and verdict.status in (Status.failed, Status.dead))
    assert verdict.delay >= 0


@given(entry=deliveries, policy=policies)
def test_attempts_never_pass_the_maximum(entry: Delivery, policy: Policy) -> None:
    verdict = judge(entry, Failed(FAULT), policy)
    if verdict.status is Status.failed:
        assert verdict.attempts < (entry.max_attempts or policy.retry.max_attempts)


@given(entry=started)
def test_what_is_given_back_stands_as_if_it_had_not_been_started(entry: Delivery) -> None:
    verdict = give_back(entry)
    assert verdict.attempts == entry.attempts - 1
    assert (verdict.status, verdict.delay, verdict.error) == (Status.failed, 0, None)
    assert verdict.blocks == (entry.key is not None)


def test_three_starts_without_an_outcome_are_poison() -> None:
    assert [is_poison(delivery(starts=starts)) for starts in range(5)] == [False, False, False, True, True]


def test_results_are_frozen_values() -> None:
    for result in (Ok(1), Err(1)):
        assert result.value == result.event == 1
        with pytest.raises(AttributeError):
            result.value = 2  # type: ignore[misc]  # that it must not
    assert Ok(1) == Ok(1)
    assert Err(1) == Err(1)
    assert repr(Ok(1)) != repr(Err(1))


def test_a_park_needs_a_time_zone() -> None:
    until = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert Park(until=until).until == until
    with pytest.raises(ValueError, match="time zone"):
        Park(until=until.replace(tzinfo=None))
    assert not issubclass(Reject, Park)


def test_a_fault_reads_well() -> None:
    assert str(FAULT) == "ValueError (some.code) at shop:charge:12"
    assert str(Fault("KeyError", message="'x'")) == "KeyError: 'x'"
    assert b"message" not in msgspec.json.encode(FAULT)
