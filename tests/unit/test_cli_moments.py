"""Times on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postlude import ConfigurationError
from postlude.cli.moments import between, parse_moment

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


@pytest.mark.parametrize(
    ("text", "is_said"), [("2026-02-01", True), ("2026-02-01T10:00", True), ("2026-02-01T10:00Z", False), ("2h", False)]
)
def test_a_missing_zone_is_said(text: str, is_said: bool, capsys) -> None:
    since, until = between(text, None)
    assert (since, until) == (parse_moment(text), None) or text == "2h"
    said = capsys.readouterr()
    assert said.out == ""
    assert (f"--since {text} has no time zone: taken as UTC" in said.err) == is_said


def test_a_span_has_a_length() -> None:
    with pytest.raises(ConfigurationError, match="not before"):
        between("1h", "2h")


def test_nothing_stays_nothing() -> None:
    assert parse_moment(None) is None


@pytest.mark.parametrize("text", ["", "yesterday", "2x", "-2h", "2026-13-01", "h"])
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a time") as refused:
        parse_moment(text)
    assert "2h" in refused.value.hint
