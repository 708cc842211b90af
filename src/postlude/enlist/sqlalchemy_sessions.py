"""Statements of ours beside the objects of a session: written before, and read anew afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from postlude.enlist import sqlalchemy_state as state
from postlude.enlist.sqlalchemy import ASYNC, SCOPED, SYNC
from postlude.errors import ConfigurationError

T = TypeVar("T")


async def on_session(session: Any, work: Callable[[Any], T], changed: frozenset[str] = frozenset()) -> T:
    """On a Session, AsyncSession or a Connection of either kind. With a sync one nothing waits. Objects of the tables
    that change are read anew when they are next looked at."""
    handle = session() if type(session).__name__ in SCOPED else session
    kinds = {cls.__name__ for cls in type(handle).__mro__ if cls.__module__.split(".")[0] == "sqlalchemy"}
    if not kinds.intersection((*SYNC, *ASYNC)):
        raise ConfigurationError(
            f"a {type(handle).__name__} cannot erase by a data map on SQLAlchemy's tables",
            hint="Give a Session or an AsyncSession on the database that has these tables.",
        )
    if kinds.intersection(ASYNC):
        result: T = await handle.run_sync(_worked, work, changed)
        return result
    return _worked(handle, work, changed)


def _worked(handle: Any, work: Callable[[Any], T], changed: frozenset[str]) -> T:
    state.require(handle)
    if state.is_connection(handle):
        return work(handle)
    handle.flush()  # what was added belongs to the subject as much as what is stored
    result = work(handle)
    for one in list(handle.identity_map.values()) if changed else ():
        if any(getattr(table, "fullname", None) in changed for table in _tables(one)):
            handle.expire(one)
    return result


def _tables(instance: Any) -> Any:
    from sqlalchemy import inspect

    return inspect(type(instance)).tables
