from __future__ import annotations

import pytest

from postlude.core.floors import MAX_ROWS, MAX_STRIDE, STRIDE, Floors, Track

NORMAL = 1


@pytest.fixture
def floors() -> Floors:
    """One lane, read once: the floor stands at 10 and nothing is new."""
    owned = Floors()
    owned.own([0])
    read(owned, stable=10)
    return owned


def read(floors: Floors, *seqs: int, stable: int, rows: int = 100) -> None:
    tracks, limit = floors.plan(rows)
    answer(floors, tracks, limit, *seqs, stable=stable)


def answer(floors: Floors, tracks: list[Track], limit: int, *seqs: int, stable: int) -> None:
    floors.read(tracks, {(0, NORMAL): (len(seqs), seqs[-1])} if seqs else {}, limit, stable)


def floor(floors: Floors) -> int:
    return floors._tracks[0, NORMAL].floor


def test_a_new_lane_starts_at_the_beginning_at_every_priority() -> None:
    floors = Floors()
    floors.own([0, 5])
    tracks, _ = floors.plan(10)
    assert {(track.lane, track.priority, track.floor) for track in tracks} == {
        (lane, priority, 0) for lane in (0, 5) for priority in (0, 1, 2)
    }


def test_what_was_read_is_not_read_again_without_news(floors: Floors) -> None:
    assert floor(floors) == 10
    assert not floors.has_dirty
    assert floors.plan(10) == ([], 0)


def test_a_floor_never_passes_the_horizon(floors: Floors) -> None:
    floors.flag(0, NORMAL, 10)
    read(floors, 11, 12, 20, stable=13)
    assert floor(floors) == 13


def test_a_read_that_was_cut_goes_on_from_its_last_row(floors: Floors) -> None:
    floors.flag(0, NORMAL, 10)
    read(floors, 11, 12, stable=50, rows=2)
    assert floor(floors) == 12
    assert floors.has_dirty


def test_news_raises_a_clean_floor_to_what_had_been_seen(floors: Floors) -> None:
    floors.flag(0, NORMAL, 40)
    assert floor(floors) == 40
    floors.flag(0, NORMAL, 60)
    assert floor(floors) == 40, "the row that was told of first has not been read yet"


def test_news_while_a_read_is_under_way_is_not_forgotten(floors: Floors) -> None:
    floors.flag(0, NORMAL, 10)
    tracks, limit = floors.plan(100)
    floors.flag(0, NORMAL, 30)
    answer(floors, tracks, limit, stable=30)
    assert floor(floors) == 30
    assert floors.has_dirty


def test_a_row_given_up_is_read_again_even_if_a_read_is_under_way(floors: Floors) -> None:
    floors.flag(0, NORMAL, 10)
    tracks, limit = floors.plan(100)
    floors.lower(0, NORMAL, 5)
    answer(floors, tracks, limit, 11, stable=20)
    assert floor(floors) == 4
    assert floors.has_dirty


def test_what_is_put_off_waits_for_the_next_due_read(floors: Floors) -> None:
    floors.lower(0, NORMAL, 5, later=True)
    assert not floors.has_dirty
    floors.flag(0, NORMAL, 40)
    assert floor(floors) == 4, "news must not lift the floor above what was put off"
    read(floors, 5, stable=40)
    floors.lower(0, NORMAL, 5, later=True)
    floors.wake_postponed()
    assert floors.has_dirty
    assert floor(floors) == 4


def test_what_is_put_off_while_a_read_is_under_way_waits_too(floors: Floors) -> None:
    floors.flag(0, NORMAL, 10)
    tracks, limit = floors.plan(100)
    floors.lower(0, NORMAL, 7, later=True)
    answer(floors, tracks, limit, stable=20)
    assert floor(floors) == 6
    assert not floors.has_dirty
    floors.wake_postponed()
    assert floors.has_dirty


def test_an_unanswered_read_moves_nothing(floors: Floors) -> None:
    floors.flag(0, NORMAL, 10)
    tracks, _ = floors.plan(100)
    floors.lower(0, NORMAL, 3, later=True)
    floors.unread(tracks)
    assert floor(floors) == 2
    assert floors.has_dirty


def test_an_answer_for_a_lane_that_was_lost_and_won_again_moves_nothing(floors: Floors) -> None:
    floors.flag(0, NORMAL, 10)
    tracks, limit = floors.plan(100)
    floors.disown([0])
    floors.own([0])
    answer(floors, tracks, limit, 11, stable=50)
    assert floor(floors) == 0
    assert floors.has_dirty


def test_lanes_of_others_are_ignored(floors: Floors) -> None:
    floors.flag(9, NORMAL, 5)
    floors.lower(9, NORMAL, 5)
    assert not floors.has_dirty


def test_news_of_everything_raises_no_floor(floors: Floors) -> None:
    floors.flag_all()
    assert floor(floors) == 10
    assert len(floors.plan(10)[0]) == 3


def test_rows_are_shared_between_the_tracks_that_have_news() -> None:
    floors = Floors()
    floors.own(range(4))
    tracks, limit = floors.plan(100)
    assert (len(tracks), limit) == (12, 9)
    floors.unread(tracks)
    assert floors.plan(3)[1] == 1


def test_strides_grow_over_blocked_rows_and_end_with_them() -> None:
    floors = Floors()
    floors.own([0])
    limits = []
    for accepted in (0, 0, 0, 0, 0, 0, 90):
        tracks, limit = floors.plan(9)
        limits.append(limit)
        floors.unread(tracks)
        floors.progress(100, accepted)
    assert limits == [3, STRIDE, STRIDE * 2, STRIDE * 4, STRIDE * 8, MAX_STRIDE, MAX_STRIDE]
    assert floors.plan(9)[1] == 3


def test_a_plan_is_bounded_whatever_the_stride() -> None:
    floors = Floors()
    floors.own(range(64))
    for _ in range(10):
        floors.progress(100, 0)
    tracks, limit = floors.plan(10**9)
    assert len(tracks) * limit <= MAX_ROWS
