from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude.core.uuid7 import first_of, time_of, uuid7

milliseconds = st.integers(0, (1 << 48) - 1)
bits = st.integers(0, (1 << 80) - 1)
moments = st.datetimes(datetime(1970, 1, 2), datetime(9998, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone


@given(one=milliseconds, other=milliseconds, chance=bits, other_chance=bits)
def test_ids_sort_by_time(one: int, other: int, chance: int, other_chance: int) -> None:
    if one != other:
        assert (uuid7(one, chance) < uuid7(other, other_chance)) == (one < other)


@given(made=milliseconds, chance=bits)
def test_they_are_well_formed(made: int, chance: int) -> None:
    event_id = uuid7(made, chance)
    assert event_id.version == 7
    assert event_id.variant == uuid4().variant
    assert event_id.int >> 80 == made


@given(made=milliseconds, chances=st.lists(st.integers(0, (1 << 74) - 1), unique=True, min_size=2, max_size=5))
def test_all_74_bits_of_chance_count(made: int, chances: list[int]) -> None:
    assert len({uuid7(made, chance) for chance in chances}) == len(chances)


@given(moment=moments, chance=bits)
def test_an_id_tells_when_it_was_made(moment: datetime, chance: int) -> None:
    made = int(moment.timestamp() * 1000)
    told = time_of(uuid7(made, chance))
    assert told is not None
    assert abs(told - moment) < timedelta(milliseconds=2)


@given(moment=moments, chance=bits)
def test_a_day_s_bound_lies_below_all_its_ids_and_above_those_before(moment: datetime, chance: int) -> None:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    first = first_of(midnight)
    milli = int(midnight.timestamp() * 1000)
    assert uuid7(milli - 1, chance) < first < uuid7(milli, chance)


@pytest.mark.parametrize("event_id", [uuid4(), uuid5(UUID(int=0), "x"), UUID(int=0)])
def test_other_versions_tell_no_time(event_id: UUID) -> None:
    assert time_of(event_id) is None


def test_an_id_of_a_year_that_no_calendar_has_tells_the_end_of_time() -> None:
    assert time_of(uuid7((1 << 48) - 1, 0)) == datetime.max.replace(tzinfo=UTC)
