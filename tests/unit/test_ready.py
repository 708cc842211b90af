from __future__ import annotations

from collections import defaultdict
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postlude.core.delivery import Delivery
from postlude.core.lifecycle import Status
from postlude.core.ready import MAX_CAREFUL, MAX_FOLLOWERS, Ready, Turn

HIGH, NORMAL, LOW = 0, 1, 2
KEYS = ("a", "b", "c")


def entry(seq: int, key: str | None = None, *, lane: int = 0, priority: int = NORMAL) -> Delivery:
    return Delivery(seq, UUID(int=seq), lane, key, priority, Status.pending, 0)


def seqs(deliveries: list[Delivery]) -> list[int]:
    return [delivery.seq for delivery in deliveries]


class Turns(RuleBasedStateMachine):
    """Anything may be added, taken, done and dropped in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = Ready()
        self.seq = 0
        self.waiting: dict[int, Delivery] = {}
        self.running: dict[int, Delivery] = {}

    @rule(key=st.none() | st.sampled_from(KEYS), lane=st.integers(0, 2), priority=st.integers(0, 2))
    def add(self, key: str | None, lane: int, priority: int) -> None:
        self.seq += 1
        if key is None:
            delivery = entry(self.seq, lane=lane, priority=priority)
        else:
            delivery = entry(self.seq, key, lane=KEYS.index(key))
        self.ready.add(delivery)
        self.waiting[self.seq] = delivery

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        startable = self.ready.startable
        taken = self.ready.take(limit)
        assert len(taken) == min(limit, startable)
        for delivery in taken:
            older = [one for one in self.waiting.values() if one.key == delivery.key and one.seq < delivery.seq]
            assert delivery.key is None or not older
            self.running[delivery.seq] = self.waiting.pop(delivery.seq)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        delivery = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self.ready.done(delivery)

    @rule(key=st.sampled_from(KEYS))
    def drop_key(self, key: str) -> None:
        expected = sorted(seq for seq, one in self.waiting.items() if one.key == key)
        assert seqs(self.ready.drop_key(key)) == expected
        for seq in expected:
            del self.waiting[seq]

    @rule(lanes=st.sets(st.integers(0, 2)))
    def drop_lanes(self, lanes: set[int]) -> None:
        expected = sorted(seq for seq, one in self.waiting.items() if one.lane in lanes)
        assert seqs(self.ready.drop_lanes(lanes)) == expected
        for seq in expected:
            del self.waiting[seq]

    @invariant()
    def one_entry_of_a_key_is_under_way(self) -> None:
        keys = [one.key for one in self.running.values() if one.key is not None]
        assert len(keys) == len(set(keys))

    @invariant()
    def the_books_agree(self) -> None:
        assert len(self.ready) == len(self.waiting) + len(self.running)
        assert self.ready.waiting == len(self.waiting)
        assert set(self.ready.running) == set(self.running)
        assert self.ready.lanes() == {one.lane for one in self.running.values()}
        assert all(seq in self.ready for seq in (*self.waiting, *self.running))

    def teardown(self) -> None:
        """Nothing is stranded: taking and finishing comes to an end."""
        while self.waiting or self.running:
            before = len(self.waiting) + len(self.running)
            self.take(5)
            for delivery in self.running.values():
                self.ready.done(delivery)
            self.running.clear()
            assert len(self.waiting) < before
        assert (len(self.ready), self.ready.startable) == (0, 0)


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=150, stateful_step_count=40)


def test_the_next_of_a_key_goes_when_the_one_before_is_done() -> None:
    ready = Ready()
    for seq in (1, 2):
        ready.add(entry(seq, "a"))
    first = ready.take(10)
    assert seqs(first) == [1]
    assert ready.take(10) == []
    assert ready.has_followers("a")
    ready.done(first[0])
    assert seqs(ready.take(10)) == [2]


def test_a_destination_with_ordered_failure_may_have_several_of_a_key() -> None:
    ready = Ready(ordered_failure=True)
    for seq in (1, 2, 3):
        ready.add(entry(seq, "a"))
    assert seqs(ready.take(10)) == [1, 2, 3]


def test_a_careful_lane_runs_one_entry_at_a_time_whatever_its_keys() -> None:
    ready = Ready(ordered_failure=True)
    for seq, key in ((1, "a"), (2, "b"), (3, None)):
        ready.add(entry(seq, key), careful=True)
    ready.add(entry(4, "c"))  # beyond what is careful, but the lane is not through yet
    ready.add(entry(5, "d", lane=1))
    order = []
    while taken := ready.take(10):
        assert len([one for one in taken if one.lane == 0]) == 1
        order += seqs(taken)
        for one in taken:
            ready.done(one)
    assert order == [1, 5, 2, 3, 4]


def test_after_a_careful_lane_is_through_it_runs_as_others() -> None:
    ready = Ready()
    ready.add(entry(1, "a"), careful=True)
    ready.done(ready.take(1)[0])
    for seq, key in ((2, "a"), (3, "b")):
        ready.add(entry(seq, key))
    assert seqs(ready.take(10)) == [2, 3]


def test_too_many_followers_are_not_taken_in() -> None:
    ready = Ready()
    for seq in range(MAX_FOLLOWERS + 1):
        assert not ready.is_crowded(entry(99, "a"))
        ready.add(entry(seq, "a"))
    assert ready.is_crowded(entry(99, "a"))
    assert not ready.is_crowded(entry(99, "b"))
    assert not ready.is_crowded(entry(99))


def test_a_finished_stranger_is_ignored() -> None:
    ready = Ready()
    ready.done(entry(1, "a"))
    ready.add(entry(2, "a"))
    ready.done(entry(2, "a"))
    assert seqs(ready.take(1)) == [2], "only what is under way can be done"


waiting = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))


def fill(ready: Ready, counts: tuple[int, int, int]) -> None:
    seq = 0
    for priority, count in enumerate(counts):
        for _ in range(count):
            seq += 1
            ready.add(entry(seq, priority=priority))


def by_priority(taken: list[Delivery]) -> list[int]:
    counts: defaultdict[int, int] = defaultdict(int)
    for delivery in taken:
        counts[delivery.priority] += 1
    return [counts[priority] for priority in (HIGH, NORMAL, LOW)]


@given(counts=waiting, limit=st.integers(10, 50))
def test_every_class_that_waits_gets_a_tenth(counts: tuple[int, int, int], limit: int) -> None:
    ready = Ready()
    fill(ready, counts)
    taken = ready.take(limit)
    assert len(taken) == min(limit, sum(counts))
    for got, there in zip(by_priority(taken), counts, strict=True):
        assert got >= min(there, limit // 10)


@given(counts=waiting, limit=st.integers(1, 50))
def test_higher_classes_get_all_that_lower_ones_need_not_have(counts: tuple[int, int, int], limit: int) -> None:
    ready = Ready()
    fill(ready, counts)
    high, normal, low = by_priority(ready.take(limit))
    share = max(1, limit // 10)
    if high < counts[HIGH]:
        assert normal <= share
    if high < counts[HIGH] or normal < counts[NORMAL]:
        assert low <= share


def test_high_goes_first_within_a_batch() -> None:
    ready = Ready()
    fill(ready, (2, 2, 2))
    assert [one.priority for one in ready.take(6)] == [HIGH, HIGH, NORMAL, NORMAL, LOW, LOW]


@pytest.mark.parametrize("parallel", [1, 4])
def test_low_is_not_starved_by_batches_of_one(parallel: int) -> None:
    """Handlers take one entry at a time: the share must hold over many takes."""
    ready = Ready()
    fill(ready, (0, 0, 5))
    taken: list[int] = []
    for seq in range(100, 300):
        ready.add(entry(seq, priority=HIGH))
        running = [ready.take(1) for _ in range(parallel)] if seq % parallel == 0 else []
        for one in running:
            taken += [delivery.priority for delivery in one]
            for delivery in one:
                ready.done(delivery)
    assert taken.count(LOW) == 5


def suspect(seq: int, key: str | None = None, *, lane: int = 0) -> Delivery:
    one = entry(seq, key, lane=lane)
    one.starts = 1
    return one


def test_of_suspects_one_at_a_time_is_under_way_in_all_destinations_of_a_worker() -> None:
    turn = Turn()
    here, there = Ready(turn=turn), Ready(turn=turn)
    first, second, third = suspect(1), suspect(2), suspect(3)
    for one in (first, second, entry(4)):
        here.add(one)
    there.add(third)
    assert seqs(here.take(10)) == [1, 4]
    assert seqs(there.take(10)) == []
    assert here.startable == there.startable == 1
    here.done(first)
    assert seqs(there.take(10)) == [3]
    assert seqs(here.take(10)) == []
    there.done(third)
    assert seqs(here.take(10)) == [2]


def test_a_suspect_is_not_overtaken_by_its_key() -> None:
    ready = Ready()
    other, head = suspect(1), suspect(2, "a")
    for one in (other, head, entry(3, "a")):
        ready.add(one)
    assert seqs(ready.take(10)) == [1]
    assert ready.take(10) == []
    ready.done(other)
    assert seqs(ready.take(10)) == [2]
    ready.done(head)
    assert seqs(ready.take(10)) == [3]


def test_waiting_suspects_can_be_taken_back() -> None:
    ready = Ready()
    for one in (suspect(1, lane=1), suspect(2, lane=2)):
        ready.add(one)
    assert seqs(ready.drop_lanes([1])) == [1]
    assert seqs(ready.take(10)) == [2]


def test_a_careful_lane_holds_much_and_says_when_it_has_enough() -> None:
    ready = Ready()
    for seq in range(1, MAX_CAREFUL + 2):
        assert not ready.is_crowded(entry(seq))
        ready.add(entry(seq), careful=True)
    assert ready.is_crowded(entry(MAX_CAREFUL + 2))
    assert ready.busy_lanes() == {0}
    ready.drop(lambda one: one.seq > MAX_CAREFUL // 2)
    assert ready.busy_lanes() == set()
