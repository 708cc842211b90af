"""The SQLSTATE of an error, whatever a driver calls it and whoever wrapped it."""

from __future__ import annotations

from collections.abc import Iterator

_AWAY = ("08", "25006", "53", "55P03", "57", "58")
"""Connections, a standby, resources, locks, operators, the system: none of it is the fault of what was written."""
_LOST = frozenset({"InternalClientError", "InterfaceError", "OperationalError"})
"""What drivers raise for a connection that is gone, where the server could not say so any more."""


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


def is_outage(error: BaseException) -> bool:
    """The database is away or cannot write now, in the words of any driver."""
    if (code := sqlstate_of(error)) is not None:
        return code.startswith(_AWAY)
    causes = list(wrapped(error))
    names = {cls.__name__ for one in causes for cls in type(one).__mro__}
    return bool(names & _LOST) or any(isinstance(one, OSError) for one in causes)
