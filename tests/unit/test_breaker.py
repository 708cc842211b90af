from __future__ import annotations

from postlude.runtime.breaker import FIRST, LONGEST, Breaker


def test_a_closed_breaker_lets_everything_pass() -> None:
    breaker = Breaker()
    assert breaker.is_closed
    assert breaker.wait(0.0) == 0.0
    assert breaker.limit(500) == 500


def test_each_failure_opens_it_for_longer_up_to_a_limit() -> None:
    breaker = Breaker()
    delays = [breaker.fail(0.0, 0.5) for _ in range(20)]
    assert delays[0] == FIRST
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST
    assert breaker.wait(0.0) == LONGEST


def test_after_a_failure_one_entry_is_enough_to_ask() -> None:
    breaker = Breaker()
    breaker.fail(10.0, 0.5)
    assert breaker.wait(10.0 + FIRST) == 0.0
    assert breaker.limit(500) == 1
    breaker.succeed()
    assert breaker.limit(500) == 500


def test_chance_spreads_the_delay() -> None:
    assert Breaker().fail(0.0, 0.0) < Breaker().fail(0.0, 0.99)
