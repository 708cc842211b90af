"""Times as people write them: `2h` ago, or an ISO date or time, with a zone or taken as UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from postlude.cli import render
from postlude.errors import ConfigurationError

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def between(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """The values of --since and --until. What has no zone is taken as UTC, and that is said."""
    for name, text in (("--since", since), ("--until", until)):
        if text is not None and (moment := _written(text)) is not None and moment.tzinfo is None:
            render.note(f"{name} {text} has no time zone: taken as UTC")
    found = parse_moment(since), parse_moment(until)
    if found[0] is not None and found[1] is not None and found[0] >= found[1]:
        raise ConfigurationError("--since is not before --until", hint="2h means two hours ago: --since 2h --until 1h.")
    return found


def parse_moment(text: str | None, now: datetime | None = None) -> datetime | None:
    """A time with a zone. Without one it is UTC, as in everything Postlude shows."""
    if text is None:
        return None
    if (ago := _AGO.fullmatch(text.strip().lower())) is not None:
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    moment = _written(text)
    if moment is None:
        raise ConfigurationError(
            f"{text!r} is not a time",
            hint="Write 45s, 30m, 2h, 7d, 1w (ago), or an ISO date such as 2026-01-31T12:00Z.",
        )
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _written(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None
