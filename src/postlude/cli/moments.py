"""Times as people write them: `2h` ago, or an ISO date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from postlude.errors import ConfigurationError

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str | None, now: datetime | None = None) -> datetime | None:
    """A time with a zone. Without one it is UTC, as in everything Postlude shows."""
    if text is None:
        return None
    if (ago := _AGO.fullmatch(text.strip().lower())) is not None:
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is not a time", hint="Write 45s, 30m, 2h, 7d, 1w (ago), or an ISO date such as 2026-01-31T12:00."
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
