"""Errors of code that is called here: what is kept of them, and what they mean for the entry."""

from __future__ import annotations

import asyncio
import logging
import traceback

from postlude.core.outcome import HELD, Failed, Fault, Outcome, Park, Parked, Reject, Rejected, Unavailable
from postlude.core.sqlstate import sqlstate_of, wrapped
from postlude.errors import (
    CannotOpen,
    ConfigurationError,
    ConnectionClosed,
    ContractViolation,
    DatabaseUnavailable,
    KeysUnavailable,
    PostludeError,
    UnknownEvent,
    Unroutable,
)
from postlude.ports.destination import Entry

log = logging.getLogger("postlude.handling")

REJECTED = (Reject, CannotOpen, ContractViolation, ConfigurationError, UnknownEvent, Unroutable)
"""No further attempt could help."""
NOT_THEIRS = (
    "asyncio", "asyncpg", "psycopg", "aiosqlite", "postlude.enlist", "postlude.outbox", "postlude.runtime",
    "postlude.storage",
)  # fmt: skip
SERIALISATION = ("40001", "40P01")
LOST_CONNECTION = ("08", "57P")  # not 57014: a statement that takes too long would be tried for ever


class Taken(Exception):
    """The delivery is busy or not ours: nothing was done."""


def outcome_of(error: Exception, name: str, entry: Entry, *, keep_messages: bool) -> Outcome:
    """What becomes of an entry whose callee raised that."""
    if isinstance(error, Taken):
        return HELD
    if isinstance(error, Park):
        return Parked(error.until)
    if isinstance(error, REJECTED):
        return Rejected(fault_of(error, keep_messages=keep_messages))
    if isinstance(error, KeysUnavailable):
        return Unavailable(fault_of(error, keep_messages=keep_messages))
    if is_transient(error):
        log.info("%s: %s is no fault of the entry; it is tried again", name, type(error).__name__)
        return HELD
    log.warning("%s failed on event %s: %s", name, entry.event.event_id, type(error).__name__)
    return Failed(fault_of(error, keep_messages=keep_messages))


def fault_of(error: BaseException, *, keep_messages: bool) -> Fault:
    kept = str(error.args[0]) if error.args else None
    return Fault(
        kind=next(cls.__name__ for cls in type(error).__mro__ if not cls.__name__.startswith("_")),
        code=getattr(error, "code", None) if isinstance(error, PostludeError) else None,
        at=(error.at if isinstance(error, ContractViolation) else None) or raised_at(error),
        message=kept if keep_messages else None,
    )


def is_transient(error: BaseException) -> bool:
    """Serialisation failures, deadlocks and lost connections burn no attempt, whoever wrapped them."""
    code = sqlstate_of(error)
    if code is not None and (code in SERIALISATION or code.startswith(LOST_CONNECTION)):
        return True
    if any(getattr(one, "connection_invalidated", False) is True for one in wrapped(error)):  # SQLAlchemy says so
        return True
    return isinstance(error, (DatabaseUnavailable, ConnectionClosed))


def raised_at(error: BaseException) -> str | None:
    """`module:function:line` of the innermost frame that is neither ours nor a driver's; says where, not about whom."""
    frames = [
        (str(frame.f_globals.get("__name__", "?")), frame.f_code.co_name, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    theirs = [frame for frame in frames if not frame[0].startswith(NOT_THEIRS)] or frames
    return "{}:{}:{}".format(*theirs[-1]) if theirs else None


def ends_us(error: BaseException) -> bool:
    """Is it the worker that is to end? Some clients raise a CancelledError of their own, and some call sys.exit()."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)
