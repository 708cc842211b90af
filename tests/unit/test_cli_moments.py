"""Times on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postlude import ConfigurationError
from postlude.cli.moments import parse_moment

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("45s", timedelta(seconds=45)),
        ("30m", timedelta(minutes=30)),
        ("2h", timedelta(hours=2)),
        (" 7D ", timedelta(days=7)),
        ("1w", timedelta(weeks=1)),
    ],
)
def test_a_length_of_time_is_that_long_ago(text: str, ago: timedelta) -> None:
    assert parse_moment(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-02-01", datetime(2026, 2, 1, tzinfo=UTC)),
        ("2026-02-01T10:00", datetime(2026, 2, 1, 10, tzinfo=UTC)),
        ("2026-02-01T10:00:00+02:00", datetime(2026, 2, 1, 8, tzinfo=UTC)),
        ("2026-02-01T10:00:00Z", datetime(2026, 2, 1, 10, tzinfo=UTC)),
    ],
)
def test_a_date_without_a_zone_is_utc(text: str, expected: datetime) -> None:
    assert parse_moment(text) == expected


def test_nothing_stays_nothing() -> None:
    assert parse_moment(None) is None


@pytest.mark.parametrize("text", ["", "yesterday", "2x", "-2h", "2026-13-01", "h"])
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a time") as refused:
        parse_moment(text)
    assert "2h" in refused.value.hint
