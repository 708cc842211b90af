from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude.settings.units import BYTES, DAYS, HOURS, MILLISECONDS, SECONDS, Unit


@pytest.mark.parametrize(
    ("unit", "text", "number"),
    [
        (SECONDS, "15s", 15),
        (SECONDS, "5m", 300),
        (SECONDS, "5min", 300),
        (SECONDS, "2h", 7200),
        (SECONDS, "30d", 2_592_000),
        (SECONDS, "1w", 604_800),
        (SECONDS, "250ms", 0.25),
        (SECONDS, " 1.5 H ", 5400),
        (MILLISECONDS, "250ms", 250),
        (MILLISECONDS, "2s", 2000),
        (HOURS, "30d", 720),
        (HOURS, "90m", 1.5),
        (DAYS, "2w", 14),
        (BYTES, "1MiB", 1_048_576),
        (BYTES, "512kB", 512_000),
        (BYTES, "2gib", 2 * 1024**3),
        (BYTES, "7B", 7),
    ],
)
def test_units_are_read(unit: Unit, text: str, number: float) -> None:
    assert unit.read(text) == number


@pytest.mark.parametrize("text", ["15 parsecs", "PT15S", "s", "", "1h30m", "15", "1e3", "9" * 30 + "s", "1.s", "- 5s"])
def test_what_is_no_duration_stays_text(text: str) -> None:
    assert SECONDS.read(text) == text


@pytest.mark.parametrize(
    ("unit", "number", "text"),
    [
        (SECONDS, 15.0, "15s"),
        (SECONDS, 300, "5m"),
        (SECONDS, 90, "90s"),
        (SECONDS, 0.25, "250ms"),
        (SECONDS, 0, "0"),
        (MILLISECONDS, 5, "5ms"),
        (MILLISECONDS, 0.5, "0.5ms"),
        (HOURS, 720, "30d"),
        (HOURS, 25, "25h"),
        (BYTES, 1_048_576, "1MiB"),
        (BYTES, 512_000, "500KiB"),
        (BYTES, 3_000_000, "3MB"),
        (BYTES, 1001, "1001B"),
    ],
)
def test_units_are_shown_short(unit: Unit, number: float, text: str) -> None:
    assert unit.show(number) == text


NUMBERS = st.integers(1, 10**9) | st.integers(1, 10**9).map(lambda thousandths: thousandths / 1000)


@given(st.sampled_from([SECONDS, MILLISECONDS, HOURS, DAYS, BYTES]), NUMBERS)
def test_what_is_shown_is_read_as_the_same(unit: Unit, number: float) -> None:
    assert unit.read(unit.show(number)) == number
