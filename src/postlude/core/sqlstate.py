"""The SQLSTATE of an error, whatever a driver calls it and whoever wrapped it."""

from __future__ import annotations

from collections.abc import Iterator


def wrapped(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised for: SQLAlchemy keeps the driver's as `orig`, Django as the cause."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and not any(one is known for known in seen):
        seen.append(one)
        yield one
        inner = getattr(one, "orig", None)
        one = inner if isinstance(inner, BaseException) else one.__cause__


def sqlstate_of(error: BaseException) -> str | None:
    """Five letters and digits, or None."""
    for one in wrapped(error):
        for name in ("sqlstate", "pgcode"):
            code = getattr(one, name, None)
            if isinstance(code, str):
                return code
    return None
