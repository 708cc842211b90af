from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from postlude.core.lanes import lane_of, quota

lanes = st.integers(1, 1024)
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
workers = st.lists(st.uuids(), min_size=1, max_size=40, unique=True)


def test_lanes_are_a_fixed_function_that_other_programs_can_compute() -> None:
    """crc32 of the key's UTF-8 bytes, else of the id's bytes. What is stored stays where it is."""
    nobody = UUID(int=0)
    assert [lane_of(key, nobody, 64) for key in ("o-1", "o-2", "Zoë")] == [26, 32, 42]
    assert lane_of(None, UUID("0190163d-8694-739b-aea5-966c26f8ad91"), 64) == 12


@given(key=keys, one=st.uuids(), other=st.uuids(), lanes=lanes)
def test_all_entries_of_a_key_share_a_lane(key: str, one: UUID, other: UUID, lanes: int) -> None:
    assert lane_of(key, one, lanes) == lane_of(key, other, lanes)
    assert 0 <= lane_of(key, one, lanes) < lanes


@given(event_id=st.uuids(), lanes=lanes)
def test_without_a_key_the_id_decides(event_id: UUID, lanes: int) -> None:
    assert 0 <= lane_of(None, event_id, lanes) < lanes
    assert lane_of(None, event_id, lanes) == lane_of(None, UUID(str(event_id)), lanes)


@given(workers=workers, lanes=lanes)
def test_shares_sum_to_all_lanes_and_differ_by_at_most_one(workers: list[UUID], lanes: int) -> None:
    shares = [quota(lanes, workers, worker) for worker in workers]
    assert sum(shares) == lanes
    assert max(shares) - min(shares) <= 1


@given(workers=workers, newcomer=st.uuids(), lanes=lanes)
def test_a_newcomer_raises_nobody_s_share(workers: list[UUID], newcomer: UUID, lanes: int) -> None:
    others = [worker for worker in workers if worker != newcomer]
    for worker in others:
        assert quota(lanes, [*others, newcomer], worker) <= quota(lanes, others, worker)


@given(workers=workers, stranger=st.uuids(), lanes=lanes)
def test_who_is_not_alive_has_no_share(workers: list[UUID], stranger: UUID, lanes: int) -> None:
    assert quota(lanes, [worker for worker in workers if worker != stranger], stranger) == 0
