"""What a relay makes of the rows it reads. Each test is a shortest sequence that would break order or lose a row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from postlude.core.blocked import BlockedMap
from postlude.core.delivery import Delivery
from postlude.core.intake import Intake
from postlude.core.lifecycle import Status

LANE = 3


def row(seq: int, key: str | None = "k", status: Status = Status.pending, **given: Any) -> Delivery:
    told: dict[str, Any] = {"lane": LANE, "priority": 1, "attempts": 0}
    return Delivery(seq=seq, event_id=UUID(int=seq), key=key, status=status, **(told | given))


@pytest.fixture
def intake() -> Intake:
    owned = Intake()
    owned.own(LANE, 0)
    return owned


class Read:
    """A hot read in its two halves: what is planned, and what comes back."""

    def __init__(self, intake: Intake, rows: int = 300) -> None:
        self._intake = intake
        self._tracks, self._limit = intake.floors.plan(rows)
        self.floors = {track.priority: track.floor for track in self._tracks}
        intake.begin()

    def comes_back(self, *rows: Delivery, stable: int = 100) -> list[int]:
        """Gives what can be started now."""
        self._intake.accept(rows)
        self._intake.came_back(self._tracks, list(rows), self._limit, stable)
        return take(self._intake)


def take(intake: Intake) -> list[int]:
    return [delivery.seq for delivery in intake.ready.take(100)]


def reread_from(intake: Intake) -> int | None:
    """Where the next hot read of the lane begins; None: it is not read at all."""
    intake.floors.wake_postponed()
    tracks, _ = intake.floors.plan(1)
    floors = [track.floor for track in tracks if track.priority == 1]
    intake.floors.unread(tracks)
    return floors[0] if floors else None


def probe(intake: Intake, *answer: str) -> None:
    """Ask for every key that waits, and be told that these are free."""
    asked = {key for key, _ in intake.suspects(all_keys=True)}
    intake.freed([key for key in answer if key in asked])


# ---------------------------------------------------------------- blocked keys


def test_a_blocked_row_waits_and_the_floor_passes_it(intake: Intake) -> None:
    assert Read(intake).comes_back(row(1, blocked=True), row(2, "other")) == [2]
    assert reread_from(intake) is None
    probe(intake, "k")
    assert reread_from(intake) == 0


def test_rows_of_a_waiting_key_wait_even_if_the_store_does_not_say_so(intake: Intake) -> None:
    Read(intake).comes_back(row(1, blocked=True))
    intake.floors.flag_all()
    assert Read(intake).comes_back(row(9)) == []
    probe(intake, "k")
    assert Read(intake).comes_back(row(1), row(9)) == [1]


def test_a_due_row_is_the_head_that_others_wait_for(intake: Intake) -> None:
    Read(intake).comes_back(row(5, blocked=True))
    intake.begin()
    intake.accept([row(2, status=Status.failed)])
    assert take(intake) == [2]


def test_a_failure_takes_its_followers_back(intake: Intake) -> None:
    first, second = row(1), row(2)
    assert Read(intake).comes_back(first, second) == [1]
    intake.failed(first)
    intake.concluded(first)
    assert take(intake) == []
    probe(intake, "k")
    assert reread_from(intake) == 1


@pytest.mark.parametrize("concluded", ["before the read", "while it is under way", "after it"])
def test_a_probe_that_knows_nothing_of_a_failure_yet_frees_nobody(intake: Intake, concluded: str) -> None:
    """Until the verdict is durable the store says that nothing holds the key."""
    first = row(1)
    assert Read(intake).comes_back(first, row(2)) == [1]
    intake.failed(first)
    probe(intake, "k")
    if concluded == "before the read":
        intake.concluded(first)
    read = Read(intake)
    if concluded == "while it is under way":
        intake.concluded(first)
    assert read.comes_back(row(2, blocked=concluded == "before the read")) == []
    intake.concluded(first)
    assert take(intake) == []


def test_a_follower_read_before_the_failure_was_durable_waits(intake: Intake) -> None:
    first = row(1)
    assert Read(intake).comes_back(first) == [1]
    intake.floors.flag_all()
    read = Read(intake)
    intake.failed(first)
    intake.concluded(first)
    assert read.comes_back(row(2)) == []


def test_without_room_for_the_key_a_failing_head_is_still_not_overtaken() -> None:
    intake = Intake(ordered_failure=True)
    intake.blocked = BlockedMap(max_keys=0)
    intake.own(LANE, 0)
    first = row(1)
    assert Read(intake).comes_back(first) == [1]
    intake.failed(first)
    intake.floors.flag_all()
    assert Read(intake).comes_back(row(2)) == [], "the verdict is on its way"
    intake.floors.flag_all()
    read = Read(intake)
    intake.concluded(first)
    assert read.comes_back(row(2)) == [], "the read began before the verdict was there"
    assert reread_from(intake) == 1


# ---------------------------------------------------------------- given up


def test_what_was_given_up_is_not_overtaken_by_a_read_under_way(intake: Intake) -> None:
    first = row(1)
    assert Read(intake).comes_back(first) == [1]
    intake.floors.flag_all()
    read = Read(intake)
    intake.give_up(first, later=True)
    assert read.comes_back(row(2)) == []
    assert reread_from(intake) == 0
    intake.floors.flag_all()
    assert Read(intake).comes_back(row(1), row(2)) == [1]


def test_what_was_given_up_takes_its_followers_along(intake: Intake) -> None:
    first, second, other = row(1), row(2), row(3, "other")
    assert Read(intake).comes_back(first, second, other) == [1, 3]
    intake.give_up(first, later=False)
    assert take(intake) == []
    assert reread_from(intake) == 0


def test_a_failing_head_that_was_given_up_is_found_again(intake: Intake) -> None:
    first = row(1)
    Read(intake).comes_back(first)
    intake.failed(first)
    intake.give_up(first, later=True)
    assert reread_from(intake) == 0
    intake.floors.flag_all()
    assert Read(intake).comes_back(row(1)) == [], "its key waits, and it with it"
    probe(intake, "k")
    assert reread_from(intake) == 0


def test_where_a_whole_lane_is_in_order_all_of_it_is_read_again() -> None:
    intake = Intake(ordered_failure=True, ordered_lanes=True)
    intake.own(LANE, 0)
    first, second = row(1, None), row(2, None)
    intake.begin()
    intake.accept([first])
    assert take(intake) == [1]
    intake.accept([second])
    read = Read(intake)
    intake.give_up(first, later=True)
    assert take(intake) == [], "2 would overtake 1"
    assert read.comes_back(row(3, None)) == [], "and so would 3"
    assert reread_from(intake) == 0


# ---------------------------------------------------------------- stale answers


def test_what_was_concluded_while_a_read_was_under_way_does_not_come_back(intake: Intake) -> None:
    first = row(1)
    assert Read(intake).comes_back(first) == [1]
    intake.floors.flag_all()
    read = Read(intake)
    intake.concluded(first)
    assert read.comes_back(row(1)) == []


def test_what_is_here_already_is_not_taken_in_twice(intake: Intake) -> None:
    read = Read(intake)
    assert read.comes_back(row(1), row(2)) == [1]
    intake.floors.flag_all()
    assert Read(intake).comes_back(row(1), row(2)) == []


def test_a_lane_that_was_lost_and_won_again_is_read_from_the_beginning(intake: Intake) -> None:
    first = row(1)
    Read(intake).comes_back(first, row(2))
    intake.floors.flag_all()
    read = Read(intake)
    intake.disown([LANE])
    intake.concluded(first)
    intake.own(LANE, 0)
    assert read.comes_back(row(3)) == [], "it does not know of 2, which was here and was forgotten"
    assert reread_from(intake) == 0


def test_rows_of_lanes_that_are_not_ours_are_left_alone(intake: Intake) -> None:
    assert Read(intake).comes_back(row(1, lane=LANE + 1)) == []


def test_a_lost_lane_leaves_nothing_behind(intake: Intake) -> None:
    Read(intake).comes_back(row(1), row(2), row(5, "held", blocked=True))
    intake.begin()
    intake.accept([row(8, "other", Status.scheduled), row(9, "held", Status.scheduled, blocked=True)])
    intake.disown([LANE])
    assert (len(intake.blocked), intake.waiting_due, intake.ready.waiting) == (0, [], 0)


# ---------------------------------------------------------------- due rows


def test_due_rows_that_are_here_are_left_out_of_the_next_due_read(intake: Intake) -> None:
    failed = row(1, status=Status.failed)
    intake.begin()
    intake.accept([failed])
    assert intake.waiting_due == [1]
    take(intake)
    intake.concluded(failed)
    assert intake.waiting_due == []


def test_a_due_row_that_waits_for_its_key_does_not_hide_the_one_it_waits_for(intake: Intake) -> None:
    """A due read takes so many of a lane, by time. What waits must not fill it for ever: its head may come later."""
    intake.begin()
    intake.accept([row(7, status=Status.scheduled, blocked=True)])
    assert intake.waiting_due == [7]
    head = row(2, status=Status.failed)
    intake.begin()
    intake.accept([head])
    assert take(intake) == [2]
    intake.concluded(head)
    assert intake.suspects(all_keys=False) == [("k", 7)]
    intake.freed(["k"])
    assert intake.waiting_due == []


# ---------------------------------------------------------------- caution and crowds


def test_up_to_the_last_seq_of_a_crash_a_lane_runs_one_at_a_time() -> None:
    intake = Intake()
    intake.own(LANE, 3)
    deliveries = [row(1, "a"), row(2, "b"), row(3, None), row(4, "c")]
    assert [intake.is_cautious(one) for one in deliveries] == [True, True, True, False]
    assert Read(intake).comes_back(*deliveries) == [1]
    for done, following in ((0, [2]), (1, [3]), (2, [4])):
        intake.concluded(deliveries[done])
        assert take(intake) == following


def test_a_crowd_of_followers_is_remembered_and_not_lost(intake: Intake, monkeypatch) -> None:
    monkeypatch.setattr("postlude.core.ready.MAX_FOLLOWERS", 2)
    rows = [row(seq) for seq in range(1, 8)]
    assert Read(intake).comes_back(*rows) == [1]
    handled = [1]
    while len(handled) < len(rows):
        intake.concluded(rows[handled[-1] - 1])
        taken = take(intake)
        if not taken:
            intake.freed([key for key, _ in intake.suspects(all_keys=False)])
            floor = Read(intake)
            taken = floor.comes_back(*(one for one in rows if one.seq > max(floor.floors[1], handled[-1])))
        assert taken == [handled[-1] + 1]
        handled += taken


def test_reading_everything_again_forgets_nothing_that_is_under_way(intake: Intake) -> None:
    first = row(1)
    assert Read(intake).comes_back(first, row(2)) == [1]
    intake.reread_all()
    assert reread_from(intake) == 0
    assert Read(intake).comes_back(row(1), row(2)) == [], "1 is under way, 2 waits behind it"
    intake.concluded(first)
    assert take(intake) == [2]
